#!/bin/bash
# Unpacks programs of a Debian release, and what they depend on, for a chroot: DIR, which is made anew.
#
#   userland.sh SUITE DIR CACHE PACKAGE...     CACHE keeps what was downloaded
#
# Needs what test/interop/guest/build.sh needs. No maintainer script is run: programs that need one do not work.
set -euo pipefail
suite=$1 root=$2 cache=$3
shift 3
export LC_ALL=C
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
mkdir -p "$cache"
cache=$(cd "$cache" && pwd)
# shellcheck source=../interop/guest/apt.sh
. "$here/../interop/guest/apt.sh"
apt_of "$suite" "$cache"
packages=$(resolve "$@")
# shellcheck disable=SC2086 # package names are words
download $packages
rm -rf "$root"
mkdir -p "$root"/{etc,dev/shm,proc,sys,run,tmp,usr/{bin,sbin,lib,lib64}}
merge_usr "$root"
one=$(mktemp -d "$root.XXXXXX")
trap 'rm -rf "$one"' EXIT
for package in $packages; do
  dpkg-deb -x "$(deb_of "$package")" "$one/package"
  merge_usr "$one/package"
  cp -a "$one/package/." "$root/"
  rm -r "$one/package"
done
echo 'root:x:0:0:root:/root:/bin/sh' > "$root/etc/passwd"
echo '127.0.0.1 localhost' > "$root/etc/hosts"
mknod -m 666 "$root/dev/null" c 1 3
mknod -m 666 "$root/dev/urandom" c 1 9
ldconfig -r "$root"
