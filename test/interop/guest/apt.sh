# Sourced by bash: packages of a Debian suite, from the host's mirrors, signed by Debian's keyring. Nothing is installed, and
# nothing of the host's is touched.

# apt_of SUITE CACHE: sets `options` for apt-get and apt-cache; lists and packages are kept in CACHE
apt_of() {
  local suite=$1 state=$2/apt-$1 archive security signed
  debs=$2/debs
  mkdir -p "$debs" "$state"/{lists,archives}/partial "$state"/etc/{apt.conf,preferences,sources.list}.d
  [ -n "$(mirror_of Debian)" ] || patiently apt-get -q update > /dev/null # a host without package lists
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
    -o Dir::State::status=/dev/null -o APT::Architecture=amd64 -o APT::Architectures=amd64 -o Acquire::Languages=none -o Acquire::Retries=3
    -o Acquire::http::Timeout=30 -o Acquire::https::Timeout=30 -o APT::Update::Error-Mode=any)
  patiently apt-get "${options[@]}" update > /dev/null
}

# patiently COMMAND...: again, up to three times, where a mirror answers by an error, which apt prints
patiently() {
  local pause
  for pause in 5 20 60; do
    "$@" && return
    echo "$1 failed: once more in $pause s" >&2
    sleep "$pause"
  done
  "$@"
}

# mirror_of LABEL: of the archive: Debian or Debian-Security
mirror_of() {
  apt-get indextargets --format '$(REPO_URI)' 'Identifier: Packages' 'Origin: Debian' "Label: $1" | head -n 1
}

# resolve PACKAGE...: prints NAME=VERSION of what apt would install on an empty system
resolve() {
  apt-get "${options[@]}" --simulate --no-install-recommends install "$@" |
    sed -n 's/^Inst \([^ ]*\) (\([^ ]*\).*/\1=\2/p' | sort
}

# deb_of NAME=VERSION: prints the file, nothing when it is not there
deb_of() {
  local name=${1%%=*} version=${1#*=}
  find "$debs" -maxdepth 1 -name "${name}_${version//:/%3a}_*.deb" -print -quit
}

# download NAME=VERSION...: those that are not there
download() {
  local package absent=()
  for package in "$@"; do [ -n "$(deb_of "$package")" ] || absent+=("$package"); done
  if ((${#absent[@]})); then
    # shellcheck disable=SC2207 # package names are words
    absent=($(printf '%s\n' "${absent[@]}" | sort -u))
    echo "downloading ${#absent[@]} packages"
    # Into a directory of its own first: a run that is killed must not leave half of a package under its name.
    mkdir -p "$debs/partial"
    (cd "$debs/partial" && patiently apt-get "${options[@]}" download "${absent[@]}" > /dev/null)
    mv "$debs"/partial/*.deb "$debs/"
  fi
}

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
