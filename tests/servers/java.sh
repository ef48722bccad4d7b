#!/usr/bin/env bash
# Compiles the engine of tests/java, Paimon's own implementation, below the cache folder and prints the class path that it runs with.
set -euo pipefail

here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
sources="$here/../java"
cache="${TIDEGATE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/tidegate}"
# What is compiled of other sources, for another checkout, does not get in the way.
version="$(cat "${BASH_SOURCE[0]}" "$sources"/pom.xml "$sources"/*.java | sha256sum | cut -c1-16)"
target="$cache/java/$version"
if [ ! -e "$target/complete" ]; then
  mkdir -p "$cache/java"
  exec 9>"$cache/java.lock"
  flock 9
  if [ ! -e "$target/complete" ]; then
    jars="$cache/java/jars-$(sha256sum "$sources/pom.xml" | cut -c1-16)"
    if [ ! -e "$jars/complete" ]; then
      rm -rf "$jars"
      mvn --batch-mode --quiet --define style.color=never -f "$sources/pom.xml" dependency:copy-dependencies -DoutputDirectory="$jars" >&2
      touch "$jars/complete"
    fi
    rm -rf "$target"
    mkdir -p "$target"
    ln -s "$jars" "$target/jars"
    javac -encoding UTF-8 -cp "$jars/*" -d "$target/classes" "$sources"/*.java >&2
    # Hadoop parses all its defaults for every Parquet file that is opened, most of a read's time; none of them matters here.
    for name in core hdfs mapred yarn; do
      echo '<configuration/>' >"$target/classes/$name-default.xml"
    done
    touch "$target/complete"
  fi
fi
echo "$target/classes:$target/jars/*"
