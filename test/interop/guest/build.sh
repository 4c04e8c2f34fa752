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
mkdir -p "$out" "$cache/debs"
out=$(cd "$out" && pwd) cache=$(cd "$cache" && pwd)
debs=$cache/debs
work=$(mktemp -d "$out/build.XXXXXX")
trap 'rm -rf "$work"' EXIT
stage=$work/stage root=$work/root sysroot=$work/sysroot
mkdir -p "$stage" "$root" "$sysroot"

list() { sed -e 's/#.*//' "$here/$1" | grep -v '^ *$'; }

# --- apt: the suite from the host's mirrors, signed by Debian's keyring; nothing installed, nothing of the host's touched
mirror_of() { # Label of the archive: Debian or Debian-Security
  apt-get indextargets --format '$(REPO_URI)' 'Identifier: Packages' 'Origin: Debian' "Label: $1" | head -n 1
}
state=$cache/apt-$suite
mkdir -p "$state"/{lists,archives}/partial "$state"/etc/{apt.conf,preferences,sources.list}.d
archive=$(mirror_of Debian) security=$(mirror_of Debian-Security)
[ -n "$archive" ] || { echo "the host's apt knows no Debian archive: apt-get update?" >&2; exit 1; }
signed=signed-by=/usr/share/keyrings/debian-archive-keyring.gpg
{
  echo "deb [$signed] $archive $suite main"
  echo "deb [$signed] $archive $suite-updates main"
  [ -z "$security" ] || echo "deb [$signed] $security $suite-security main"
} > "$state/etc/sources.list"
options=(-q -o APT::Sandbox::User=root -o Dir::Etc="$state/etc" -o Dir::State::lists="$state/lists" -o Dir::Cache="$state"
  -o Dir::Etc::netrc=/etc/apt/auth.conf -o Dir::Etc::netrcparts=/etc/apt/auth.conf.d # a mirror's password
  -o Dir::State::status=/dev/null -o APT::Architecture=amd64 -o APT::Architectures=amd64 -o Acquire::Languages=none)
apt-get "${options[@]}" update > /dev/null

# --- packages: what contents.txt names and what that depends on, as apt would install it on an empty system; and what
# building the programs needs
kernel=$(apt-cache "${options[@]}" depends linux-image-amd64 |
  awk '$1 == "Depends:" && $2 ~ /^linux-image/ { print $2; exit }')
resolve() { # prints NAME=VERSION
  apt-get "${options[@]}" --simulate --no-install-recommends install "$@" |
    sed -n 's/^Inst \([^ ]*\) (\([^ ]*\).*/\1=\2/p' | sort
}
# shellcheck disable=SC2046 # package names are words
packages=$(resolve $(list contents.txt | awk '{ print $1 }'))
packages+=" $(resolve "$kernel" | grep "^$kernel=")"
headers=$(resolve libc6-dev libibverbs-dev)
deb_of() { # NAME=VERSION → the file, empty when it is not there
  local name=${1%%=*} version=${1#*=}
  find "$debs" -name "${name}_${version//:/%3a}_*.deb" -print -quit
}
absent=()
for package in $packages $headers; do [ -n "$(deb_of "$package")" ] || absent+=("$package"); done
if ((${#absent[@]})); then
  # shellcheck disable=SC2207 # package names are words
  absent=($(printf '%s\n' "${absent[@]}" | sort -u))
  echo "downloading ${#absent[@]} packages"
  (cd "$debs" && apt-get "${options[@]}" download "${absent[@]}" > /dev/null)
fi
# merge_usr DIRECTORY: what stands in /bin, /lib, … goes below /usr, as trixie's packages have it
merge_usr() {
  local dir
  for dir in bin sbin lib lib64; do
    if [ -d "$1/$dir" ] && [ ! -L "$1/$dir" ]; then
      mkdir -p "$1/usr/$dir"
      cp -a "$1/$dir/." "$1/usr/$dir/"
      rm -r "${1:?}/$dir"
    fi
    ln -sfn "usr/$dir" "$1/$dir"
  done
}
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
