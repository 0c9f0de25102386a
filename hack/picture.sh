#!/bin/sh
# Creates a real cluster of three masters and a worker on machines of the testbed, records what kubexm shows on a
# terminal meanwhile, and makes docs/live.svg of it. As root, on Debian 12, like `make e2e`.
set -eu
cd "$(dirname "$0")/.."
export KUBEXM_TESTBED=pict
dir=$(mktemp -d)
trap 'bin/testbed down >/dev/null; rm -rf "$dir"' EXIT
bin/testbed deps
bin/testbed build
bin/testbed images
bin/testbed up 4
bin/testbed serve --detach
mkdir -p "$dir/conf/prod"
bin/testbed config 4 --rows 7 | sed 's/name: testbed/name: prod/' >"$dir/conf/prod/cluster.yaml"
PATH=$PWD/bin:$PATH
cd "$dir"
kubexm hosts trust --yes
kubexm download # a picture of a download shows the network, not kubexm
TERM=xterm-256color script --quiet --return --logging-format classic --log-out out --log-timing times \
	--command "stty cols 100 rows 16; exec kubexm create cluster"
cd "$OLDPWD"
go run ./hack/picture "$dir/out" "$dir/times" >"$dir/live.svg"
mv "$dir/live.svg" docs/live.svg
chmod 644 docs/live.svg
