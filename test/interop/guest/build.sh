#!/bin/bash
# Builds a guest: OUT/vmlinuz, OUT/initramfs.cpio and OUT/versions.txt (the packages used).
#
#   build.sh SUITE OUT CACHE      SUITE: bookworm or trixie; CACHE keeps what was downloaded for the next build
#
# Needs Debian on x86-64 with package lists present (apt-get update), and apt-get, dpkg-deb, gcc, readelf, kmod, cpio. It
# does not need to be root. The packages come through an apt configuration of its own, with the mirrors of the host's;
# programs are built with the headers and libraries of the guest. For a given set of packages the image is the same, bit
# for bit.
set -euo pipefail
suite=$1 out=$2 cache=$3
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
export LC_ALL=C
mkdir -p "$out" "$cache"
out=$(cd "$out" && pwd) cache=$(cd "$cache" && pwd)
work=$(mktemp -d "$out/build.XXXXXX")
trap 'rm -rf "$work"' EXIT
stage=$work/stage root=$work/root sysroot=$work/sysroot
mkdir -p "$stage" "$root" "$sysroot"

list() { sed -e 's/#.*//' "$here/$1" | grep -v '^ *$'; }

# --- apt: the suite from the host's mirrors
# shellcheck source=apt.sh
. "$here/apt.sh"
apt_of "$suite" "$cache"

# --- packages: what contents.txt names and what that depends on, as apt would install it on an empty system; and what
# building the programs needs
kernel=$(apt-cache "${options[@]}" depends linux-image-amd64 |
  awk '$1 == "Depends:" && $2 ~ /^linux-image/ { print $2; exit }')
# shellcheck disable=SC2046 # package names are words
packages=$(resolve $(list contents.txt | awk '{ print $1 }'))
packages+=" $(resolve "$kernel" | grep "^$kernel=")"
headers=$(resolve libc6-dev libibverbs-dev)
# shellcheck disable=SC2086 # package names are words
download $packages $headers
for package in $packages; do
  dpkg-deb -x "$(deb_of "$package")" "$stage/${package%%=*}"
  merge_usr "$stage/${package%%=*}"
done
for package in $headers; do
  dpkg-deb -x "$(deb_of "$package")" "$work/one"
  merge_usr "$work/one"
  cp -a "$work/one/." "$sysroot/"
  rm -r "$work/one"
done
printf '%s\n' $packages | tr '=' ' ' > "$out/versions.txt"

# --- file system: one /usr, links for the old places
mkdir -p "$root"/{etc,dev,proc,sys,run,tmp,root,var} "$root"/usr/{bin,sbin,lib,lib64}
merge_usr "$root"
ln -s /run "$root/var/run"
ln -s dash "$root/usr/bin/sh" # busybox's shell would prefer its own ip to iproute2's
echo 'root:x:0:0:root:/root:/bin/sh' > "$root/etc/passwd"
echo 'root:x:0:' > "$root/etc/group"
echo '127.0.0.1 localhost' > "$root/etc/hosts"
echo 'hosts: files' > "$root/etc/nsswitch.conf"

# install_file PACKAGE PATH: a file of an unpacked package to the same place
install_file() {
  mkdir -p "$root/$(dirname "$2")"
  cp -L "$stage/$1/$2" "$root/$2"
}
while read -r package globs; do
  # shellcheck disable=SC2086 # globs are meant to expand
  for file in $(cd "$stage/$package" && echo $globs); do install_file "$package" "$file"; done
done < <(list contents.txt)
install -m 755 "$here/init" "$root/init"
libraries=$sysroot/usr/lib/x86_64-linux-gnu # gcc would look into the host's first
build=(gcc --sysroot="$sysroot" -B"$libraries" -L"$libraries" -O2 -Wall -Wextra -s)
"${build[@]}" -static -o "$root/usr/sbin/execd" "$here/execd.c"
flush=() # rdma-core has it from 45 on
if grep -q ibv_wr_flush "$sysroot/usr/include/infiniband/verbs.h"; then flush=(-DHAVE_FLUSH); fi
"${build[@]}" "${flush[@]}" -o "$root/usr/bin/rverbs" "$here"/rverbs/*.c -libverbs

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
install_file libc6 usr/lib64/ld-linux-x86-64.so.2
ldconfig -r "$root"

# --- kernel and modules
version=$(ls "$stage/$kernel/usr/lib/modules")
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
cp "$stage/$kernel/$modules"/modules.{order,builtin,builtin.modinfo} "$root/$modules/"
depmod -b "$root" "$version"
cp "$stage/$kernel/boot/vmlinuz-$version" "$out/vmlinuz"

# --- image: fixed times, owners and order
find "$root" -exec touch -h -d @0 {} +
(cd "$root" && find . -print0 | sort -z | cpio --null --create --format=newc --reproducible --owner=0:0 --quiet) \
  > "$out/initramfs.cpio"
ls -l "$out/vmlinuz" "$out/initramfs.cpio"
