#!/usr/bin/env bash
# Unpacks a MySQL server below the cache folder and prints the folder's name. Nothing is installed on the machine.
#
# Debian carries MySQL in its unstable suite alone, so the packages are resolved there by a private apt configuration (own lists, own cache, an
# empty package status so that the C library and the loader come along) and unpacked side by side. The mirror is the one that this machine
# already uses, read from its own apt sources.
set -euo pipefail

cache="${TIDEGATE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/tidegate}"
target="$cache/mysql"
if [ -e "$target/complete" ]; then
  echo "$target"
  exit 0
fi

mkdir -p "$cache"
exec 9>"$cache/mysql.lock"
flock 9
if [ -e "$target/complete" ]; then
  echo "$target"
  exit 0
fi

mirror="$(apt-get indextargets --format '$(REPO_URI)|$(CODENAME)|$(LABEL)' 'Created-By: Packages' |
  awk -F'|' '$3 == "Debian" && $2 !~ /security|updates|backports/ { print $1; exit }')"
if [ -z "$mirror" ]; then
  # Without downloaded lists apt names no targets: read the sources themselves.
  mirror="$(cat /etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources 2>/dev/null |
    sed -nE 's/^URIs:[[:space:]]*([^[:space:]]+).*/\1/p; s/^deb[[:space:]]+(\[[^]]*\][[:space:]]+)?([^[:space:]]+)[[:space:]].*/\2/p' |
    grep -E '/debian/?$' | head -n 1)"
fi
if [ -z "$mirror" ]; then
  echo "no Debian mirror is named in this machine's apt sources" >&2
  exit 1
fi

work="$cache/mysql.partial"
rm -rf "$work"
mkdir -p "$work"/{etc,lists/partial,archives/partial,root}
: >"$work/status"
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
echo "deb [signed-by=$keyring] $mirror sid main" >"$work/etc/sources.list"
options=(
  -q -y
  -o "Dir::Etc::SourceList=$work/etc/sources.list"
  -o "Dir::Etc::SourceParts=/dev/null"
  -o "Dir::Etc::Preferences=/dev/null"
  -o "Dir::Etc::PreferencesParts=/dev/null"
  -o "Dir::State=$work"
  -o "Dir::State::status=$work/status"
  -o "Dir::State::lists=$work/lists"
  -o "Dir::Cache=$work"
  -o "Dir::Cache::archives=$work/archives"
  -o "APT::Architecture=amd64"
  -o "APT::Architectures=amd64"
  -o "APT::Install-Recommends=false"
  -o "APT::Get::List-Cleanup=false"
  -o "APT::Keep-Downloaded-Packages=true"
  -o "APT::Sandbox::User="
  # A mirror can be a frozen copy whose lists are past their date.
  -o "Acquire::Check-Valid-Until=false"
  -o "Acquire::Languages=none"
  -o "Acquire::Retries=3"
)
apt-get "${options[@]}" update >&2

apt-get "${options[@]}" --download-only install mysql-server-core mysql-client-core >&2
for package in "$work"/archives/*.deb; do
  dpkg -x "$package" "$work/root"
done
rm -rf "$work"/{archives,lists,etc,status} "$work"/*.bin

# The binaries need the C library that was unpacked with them: they are started through its loader.
loader="$(find "$work/root" -name 'ld-linux-x86-64.so.2' \( -type f -o -type l \) | head -n 1)"
mysqld="$work/root/usr/sbin/mysqld"
if [ -z "$loader" ] || [ ! -x "$mysqld" ]; then
  echo "the unpacked packages hold no mysqld or no loader" >&2
  exit 1
fi
# `root` ships /lib as a link to /usr/lib only after installation, so both trees are searched.
wrap() {
  cat >"$work/$1" <<SCRIPT
#!/bin/sh
# Runs the unpacked $1 through the loader and the libraries unpacked with it.
here="\$(dirname "\$(readlink -f "\$0")")"
root="\$here/root"
exec "\$root/${loader#"$work/root/"}" --library-path "\$root/usr/lib/x86_64-linux-gnu:\$root/lib/x86_64-linux-gnu:\$root/usr/lib/mysql/private" \
  "\$root/$2" "\$@"
SCRIPT
  chmod +x "$work/$1"
}
wrap mysqld usr/sbin/mysqld
wrap mysql usr/bin/mysql
wrap mysqlbinlog usr/bin/mysqlbinlog
"$work/mysqld" --no-defaults --version >&2
touch "$work/complete"
rm -rf "$target"
mv "$work" "$target"
echo "$target"
