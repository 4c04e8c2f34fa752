#!/bin/bash
# Downloads the source of a Debian kernel unless it is there, and prints its version and its file.
#
#   fetch.sh SUITE SERIES CACHE     SUITE: bookworm or trixie; SERIES: 6.1, 6.12; CACHE keeps the package
set -euo pipefail
suite=$1 series=$2 cache=$3
export LC_ALL=C
# shellcheck source=../guest/apt.sh
. "$(dirname "${BASH_SOURCE[0]}")/../guest/apt.sh"
apt_of "$suite" "$cache" >&2
package=$(resolve "linux-source-$series" | grep "^linux-source-$series=")
[ -n "$(deb_of "$package")" ] || rm -f "$debs/linux-source-${series}_"*.deb # those of older versions
download "$package" >&2
echo "${package#*=} $(deb_of "$package")"
