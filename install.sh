#!/bin/sh
# Fetches a release of recycle-eks, checks it, and unpacks it into a folder:
#
#   <folder>/arm64/<function>.zip, <folder>/arm64/version.txt    the packages: artifacts = { directory = "<folder>" }
#   <folder>/recycle-eks                                         the command line for this machine
#
# sh install.sh [--version 0.1.0] [--directory ./recycle-eks] [--architecture arm64|x86_64|both]
#
# Every file has to have the checksum that SHA256SUMS of the release has. If `gh` is installed and logged in, the attestation of
# SHA256SUMS has to be of the repository's release workflow. Without `gh` the checksums alone are checked, and a line says so.
#
# Environment: RECYCLE_EKS_REPOSITORY is owner/name on GitHub. RECYCLE_EKS_RELEASES is another address than that of GitHub's releases;
# below it are latest/download/<file> and download/v<version>/<file>. Nothing there is attested.
set -eu

repository=${RECYCLE_EKS_REPOSITORY:-}
releases=${RECYCLE_EKS_RELEASES:-}
version=latest
directory=recycle-eks
architecture=arm64

fail() {
  echo "install.sh: $1" >&2
  exit 1
}

while [ $# -gt 0 ]; do
  case $1 in
    --version | --directory | --architecture) [ $# -gt 1 ] || fail "$1 needs a value" ;;
  esac
  case $1 in
    --version) version=${2#v} ;;
    --directory) directory=$2 ;;
    --architecture) architecture=$2 ;;
    -h | --help)
      sed -n '2,/^set/s/^# \{0,1\}//p' "$0"
      exit 0
      ;;
    *) fail "unknown argument $1; see --help" ;;
  esac
  case $1 in -*) shift 2 ;; esac
done

case $architecture in
  arm64 | x86_64) architectures=$architecture ;;
  both) architectures="arm64 x86_64" ;;
  *) fail "--architecture is arm64, x86_64 or both, not $architecture" ;;
esac

if [ -z "$releases" ]; then
  [ -n "$repository" ] || fail "set RECYCLE_EKS_REPOSITORY to owner/name on GitHub, or take install.sh from a release, which knows it"
  releases=https://github.com/$repository/releases
fi
case $version in
  latest) address=$releases/latest/download ;;
  *) address=$releases/download/v$version ;;
esac

case $(uname -s) in
  Linux) system=linux ;;
  Darwin) system=macos ;;
  *) fail "there is no command line for $(uname -s); use a machine with Linux or macOS" ;;
esac
case $(uname -m) in
  aarch64 | arm64) machine=arm64 ;;
  x86_64 | amd64) machine=x86_64 ;;
  *) fail "there is no command line for $(uname -m)" ;;
esac
[ "$system-$machine" != macos-x86_64 ] || fail "there is no command line for macOS on Intel; use a Mac with Apple silicon, or Linux"
command_line=recycle-eks-$system-$machine

command -v curl > /dev/null || fail "curl is needed"
if command -v sha256sum > /dev/null; then
  sum() { sha256sum "$1" | cut -d ' ' -f 1; }
elif command -v shasum > /dev/null; then
  sum() { shasum -a 256 "$1" | cut -d ' ' -f 1; }
else
  fail "sha256sum or shasum is needed"
fi

fetched=$(mktemp -d)
trap 'rm -rf "$fetched"' EXIT

fetch() {
  curl --fail --silent --show-error --location --retry 3 --output "$fetched/$1" "$address/$1" ||
    fail "cannot fetch $address/$1"
}

# Fetches a file and compares its checksum with that in SHA256SUMS.
fetch_checked() {
  fetch "$1"
  expected=$(awk -v name="$1" '$2 == name { print $1 }' "$fetched/SHA256SUMS")
  [ -n "$expected" ] || fail "SHA256SUMS of the release does not name $1; nothing is installed"
  found=$(sum "$fetched/$1")
  [ "$found" = "$expected" ] ||
    fail "$1 has the checksum $found, but the release has $expected; nothing is installed. Fetch it again, and report it if it happens again"
}

fetch SHA256SUMS
if [ -n "${RECYCLE_EKS_RELEASES:-}" ]; then
  echo "the attestation is not checked, because the release is not from GitHub"
elif command -v gh > /dev/null && gh auth status > /dev/null 2>&1; then
  gh attestation verify "$fetched/SHA256SUMS" --repo "$repository" --signer-workflow "$repository/.github/workflows/release.yml" > /dev/null ||
    fail "SHA256SUMS has no valid attestation of $repository; nothing is installed"
  echo "the attestation of $repository is valid"
else
  echo "the attestation is not checked, because gh is not installed or not logged in"
fi
for each in $architectures; do
  fetch_checked "recycle-eks-packages-$each.tar.gz"
done
fetch_checked "$command_line"

mkdir -p "$directory"
for each in $architectures; do
  rm -rf "${directory:?}/$each"
  tar -xzf "$fetched/recycle-eks-packages-$each.tar.gz" -C "$directory"
  echo "$directory/$each: the packages of version $(cat "$directory/$each/version.txt")"
done
# A running program cannot be written, but it can be replaced.
chmod 755 "$fetched/$command_line"
cp "$fetched/$command_line" "$directory/.recycle-eks"
mv -f "$directory/.recycle-eks" "$directory/recycle-eks"
echo "$directory/recycle-eks: the command line"
echo "in the module: artifacts = { directory = \"$directory\" }"
