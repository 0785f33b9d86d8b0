# shellcheck shell=sh
# Shared functions of the two tests on Ubuntu 24.04. The caller sets `check` to its name and `work` to a folder.
# EBB_UBUNTU_MIRROR selects another mirror.
mirror=${EBB_UBUNTU_MIRROR:-http://archive.ubuntu.com/ubuntu}
fail() { echo "$check: $*" >&2; exit 1; }
skip() { echo "skipped: $*"; exit 77; }

# Sets `keyring` to the keys of Ubuntu, which verify all downloads. A checksum verifies the package of the keys.
get_keyring() {
  package=ubuntu-keyring_2023.11.28.1_all.deb
  sum=36de43b15853ccae0028e9a767613770c704833f82586f28eb262f0311adb8a8
  if ! echo "$sum  $work/$package" | sha256sum --check --status 2>/dev/null; then
    /usr/lib/apt/apt-helper download-file "$mirror/pool/main/u/ubuntu-keyring/$package" "$work/$package" "SHA256:$sum" \
      >"$work/keyring.log" 2>&1 || skip "no network, or no Ubuntu at $mirror: $(tail -n 1 "$work/keyring.log")"
  fi
  dpkg-deb -x "$work/$package" "$work/keyring"
  keyring="$work/keyring/usr/share/keyrings/ubuntu-archive-keyring.gpg"
}

# Runs a command in the root, with /proc, /sys and /dev of this machine. Without a command it checks that this is possible.
in_root() {
  as_root=""
  [ "$(id -u)" -eq 0 ] || as_root=--map-root-user
  # shellcheck disable=SC2086  # nothing, or a flag
  unshare $as_root --mount sh -c 'set -e; root=$1; shift
    for of in proc sys dev; do mount --rbind /$of "$root/$of"; done
    [ $# -eq 0 ] || exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive \
      chroot "$root" "$@"' sh "$root" "$@"
}
