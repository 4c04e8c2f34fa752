#!/bin/bash
# Builds Linux for User-Mode Linux, an ordinary program, with rdma_rxe, uverbs, umad and rdma_cm built in: OUT/linux and OUT/config.
#
#   build.sh DEB SERIES OUT LOG     DEB: Debian's package linux-source-SERIES; LOG gets the output of make
#
# The source is Debian's, with Debian's patches; patches/SERIES-*.patch, if there are any, are applied to arch/um and lib, never to rxe.
# Needs gcc, libc6-dev, make, flex, bison, bc, xz and patch, 700 MB below $TMPDIR, and five minutes of one processor. It does not need to be root.
# The same package, configuration and compiler give the same program.
set -euo pipefail
deb=$(realpath "$1") series=$2 out=$(realpath "$3") log=$(realpath "$4")
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
export LC_ALL=C TZ=UTC
work=$(mktemp -d "$out/build.XXXXXX")
trap 'rm -rf "$work"' EXIT
tree=./usr/src/linux-source-$series.tar.xz

# --- unpack: all that Kconfig and make read, and the code of what ARCH=um can build. The code of these is left out:
drivers=(accel clk crypto gpu hwmon iio media mtd net/ethernet net/wireless phy pinctrl platform scsi soc staging usb video)
trees=(sound drivers/infiniband/hw fs/{bcachefs,btrfs,nfs,nfsd,ocfs2,smb,xfs} Documentation samples tools/{perf,testing})
architectures=(alpha arc arm arm64 csky hexagon loongarch m68k microblaze mips nios2 openrisc parisc powerpc riscv s390 sh sparc xtensa)
leave=()
for directory in "${drivers[@]/#/drivers/}" "${trees[@]}" "${architectures[@]/#/arch/}"; do
  for kind in '*.[chS]' '*.dts*' '*.rst' '*.yaml' '*.json'; do leave+=("--exclude=*/$directory/$kind"); done
done
mkdir "$work/source" "$work/objects"
dpkg-deb --fsys-tarfile "$deb" | tar --extract --to-stdout "$tree" | xz -dc |
  tar --extract --directory "$work/source" --strip-components=1 "${leave[@]}"
for patch in "$here/patches/$series"-*.patch; do
  [ ! -e "$patch" ] || patch --directory "$work/source" --strip 1 --quiet < "$patch"
done

# --- configure and build. Times, names and paths are fixed, so that two builds are equal.
cat "$here/kernel.config" "$here/kernel-$series.config" > "$work/kernel.config" 2> /dev/null || true # few series have their own
date=$(dpkg-deb --fsys-tarfile "$deb" | tar --list --verbose --utc "$tree" | awk '{ print $4, $5, "UTC" }')
linux() {
  make --directory "$work/source" ARCH=um O="$work/objects" -j"$(nproc)" KCONFIG_ALLCONFIG="$work/kernel.config" \
    KBUILD_BUILD_TIMESTAMP="$date" KBUILD_BUILD_USER=um KBUILD_BUILD_HOST=um KBUILD_BUILD_VERSION=1 \
    KCFLAGS="-ffile-prefix-map=$work=." KAFLAGS="-ffile-prefix-map=$work=." "$@" >> "$log" 2>&1 ||
    { tail -n 30 "$log" >&2; echo "make $* failed; all of its output is in $log" >&2; exit 1; }
}
: > "$log"
linux allnoconfig
# make silently leaves out an option whose dependencies are missing.
if grep -E '^CONFIG_' "$work/kernel.config" | grep -vxFf "$work/objects/.config" >&2; then
  echo "Linux $series does not take these options of kernel.config" >&2
  exit 1
fi
linux linux
strip -o "$out/linux" "$work/objects/linux"
cp "$work/objects/.config" "$out/config"
