#!/bin/sh
# Builds kubexm for linux/amd64 twice: of copies of the tracked files in two places, with other times, the second with nothing compiled before. Fails
# where the programs differ.
#   hack/reproducible.sh FLAGS-OF-GO-BUILD...
set -eu
cd "$(dirname "$0")/.."
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
build() { # DIR TIME FLAGS...
	mkdir -p "$tmp/$1/src"
	git ls-files -z cmd internal pkg go.mod go.sum | xargs -0 cp --parents -t "$tmp/$1/src"
	find "$tmp/$1/src" -exec touch -d "$2" {} +
	(
		cd "$tmp/$1/src"
		shift 2
		CGO_ENABLED=0 GOOS=linux GOARCH=amd64 GOAMD64=v1 GOFLAGS=-mod=readonly GOWORK=off go build "$@" -o ../kubexm ./cmd/kubexm
	)
	sha256sum "$tmp/$1/kubexm" | cut -d ' ' -f 1
}
build here 2001-01-01 "$@"
export GOCACHE="$tmp/cache"
build some/other/place 2031-12-31 "$@"
cmp "$tmp/here/kubexm" "$tmp/some/other/place/kubexm"
echo "the same bytes"
