#!/bin/bash
# Builds the rxe guest: OUT/vmlinuz, OUT/initramfs.cpio and OUT/versions.txt (the packages used).
#
#   build.sh OUT DEBS      DEBS keeps the downloaded .debs for the next build
#
# Needs Debian on x86-64 with package lists present (apt-get update), and apt-get, dpkg-deb, gcc,
# libibverbs-dev, readelf, kmod, cpio. It does not need to be root. For a given set of .debs the
# image is the same, bit for bit.
set -euo pipefail
out=$1 debs=$2
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
export LC_ALL=C
mkdir -p "$out" "$debs"
out=$(cd "$out" && pwd) debs=$(cd "$debs" && pwd)
work=$(mktemp -d "$out/build.XXXXXX")
trap 'rm -rf "$work"' EXIT
stage=$work/stage root=$work/root
mkdir -p "$stage" "$root"

list() { sed -e 's/#.*//' "$here/$1" | grep -v '^ *$'; }

# --- packages: what contents.txt names and what that depends on, as apt would install it on an empty system
kernel=$(apt-cache depends linux-image-amd64 | awk '$1 == "Depends:" && $2 ~ /^linux-image/ { print $2; exit }')
resolve() { # prints NAME=VERSION
  apt-get --simulate -o Dir::State::status=/dev/null --no-install-recommends install "$@" |
    sed -n 's/^Inst \([^ ]*\) (\([^ ]*\).*/\1=\2/p'
}
# shellcheck disable=SC2046 # package names are words
packages=$(resolve $(list contents.txt | awk '{ print $1 }') | sort)
packages+=" $(resolve "$kernel" | grep "^$kernel=")"
deb_of() { # NAME=VERSION → the file, empty when it is not there
  local name=${1%%=*} version=${1#*=}
  find "$debs" -name "${name}_${version//:/%3a}_*.deb" -print -quit
}
absent=()
for package in $packages; do [ -n "$(deb_of "$package")" ] || absent+=("$package"); done
if ((${#absent[@]})); then
  echo "downloading ${#absent[@]} packages"
  (cd "$debs" && apt-get -q -o APT::Sandbox::User=root download "${absent[@]}" > /dev/null)
fi
for package in $packages; do
  dpkg-deb -x "$(deb_of "$package")" "$stage/${package%%=*}"
done
printf '%s\n' $packages | tr '=' ' ' > "$out/versions.txt"

# --- file system: one /usr, links for the old places
mkdir -p "$root"/usr/{bin,sbin,lib,lib64} "$root"/{etc,dev,proc,sys,run,tmp,root,var}
for dir in bin sbin lib lib64; do ln -s "usr/$dir" "$root/$dir"; done
ln -s /run "$root/var/run"
ln -s dash "$root/usr/bin/sh" # busybox's shell would prefer its own ip to iproute2's
echo 'root:x:0:0:root:/root:/bin/sh' > "$root/etc/passwd"
echo 'root:x:0:' > "$root/etc/group"
echo '127.0.0.1 localhost' > "$root/etc/hosts"
echo 'hosts: files' > "$root/etc/nsswitch.conf"

# install_file PACKAGE PATH: a file of an unpacked package to the same place under the merged /usr
install_file() {
  local to=$2
  case $to in bin/* | sbin/* | lib/* | lib64/*) to=usr/$to ;; esac
  mkdir -p "$root/$(dirname "$to")"
  cp -L "$stage/$1/$2" "$root/$to"
}
while read -r package globs; do
  # shellcheck disable=SC2086 # globs are meant to expand
  for file in $(cd "$stage/$package" && echo $globs); do install_file "$package" "$file"; done
done < <(list contents.txt)
install -m 755 "$here/init" "$root/init"
gcc -O2 -Wall -Wextra -static -s -o "$root/usr/sbin/execd" "$here/execd.c"
gcc -O2 -Wall -Wextra -s -o "$root/usr/bin/rverbs" "$here"/rverbs/*.c -libverbs

# --- shared libraries: follow NEEDED until nothing is missing
while :; do
  missing=$({ find "$root/usr" -type f \( -perm -u+x -o -name '*.so*' \) -exec readelf -d {} + 2> /dev/null || true; } |
    sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | sort -u |
    while read -r lib; do [ -n "$(find "$root/usr" -name "$lib" -print -quit)" ] || echo "$lib"; done)
  [ -n "$missing" ] || break
  for lib in $missing; do
    path=$(cd "$stage" && find . -path "./$kernel" -prune -o -name "$lib" -printf '%P\n' -quit)
    [ -n "$path" ] || { echo "no package has $lib" >&2; exit 1; }
    install_file "${path%%/*}" "${path#*/}"
  done
done
install_file libc6 lib64/ld-linux-x86-64.so.2
ldconfig -r "$root"

# --- kernel and modules
version=$(ls "$stage/$kernel/lib/modules")
depmod -b "$stage/$kernel" "$version"
modules=usr/lib/modules/$version
mkdir -p "$root/$modules"
for module in $(list modules.txt); do
  modprobe -d "$stage/$kernel" -S "$version" --show-depends "$module" | awk '$1 == "insmod" { print $2 }'
done | sort -u | while read -r file; do
  to=$root/$modules/${file#*"/lib/modules/$version/"}
  mkdir -p "$(dirname "$to")"
  cp "$file" "$to"
done
find "$root/$modules" -name '*.ko.xz' -exec unxz {} +
cp "$stage/$kernel/lib/modules/$version"/modules.{order,builtin,builtin.modinfo} "$root/$modules/"
depmod -b "$root" "$version"
cp "$stage/$kernel/boot/vmlinuz-$version" "$out/vmlinuz"

# --- image: fixed times, owners and order
find "$root" -exec touch -h -d @0 {} +
(cd "$root" && find . -print0 | sort -z | cpio --null --create --format=newc --reproducible --owner=0:0 --quiet) \
  > "$out/initramfs.cpio"
ls -l "$out/vmlinuz" "$out/initramfs.cpio"
