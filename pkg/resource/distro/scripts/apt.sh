# shellcheck shell=sh
# Lets apt tell what it would fetch for a machine without any package: the arguments, each a list of packages that are
# installed together. It keeps this machine's settings of how to reach servers, and none of its sources, keys, pins and
# architectures. Sources come by standard input: where they are served may be nobody's to know. Inputs: KEYS is the file
# of the keys that sign the index, ARCH the architecture, CONF further settings.
command -v apt-get >/dev/null || exit 71
[ -r "$KEYS" ] || exit 72
T=$(mktemp -d) || exit 1
trap 'rm -rf "$T"' EXIT; trap 'exit 143' TERM INT
chmod 755 "$T"; mkdir -p "$T/state/lists/partial" "$T/cache/archives/partial"; : >"$T/status"
(umask 077; cat >"$T/sources.list")
cat >"$T/apt.conf" <<END
Dir::State "$T/state"; Dir::State::status "$T/status"; Dir::Cache "$T/cache";
Dir::Etc::SourceList "$T/sources.list"; Dir::Etc::SourceParts "/dev/null"; Dir::Etc::Trusted "/dev/null"; Dir::Etc::TrustedParts "/dev/null";
APT::Architecture "$ARCH"; APT::Architectures "$ARCH"; APT::Update::Error-Mode "any";
Acquire::http::Proxy::127.0.0.1 "DIRECT"; Acquire::Retries "3"; Acquire::ForceHash "SHA256";
$CONF
END
apt-get -c "$T/apt.conf" -qq update >&2 || exit
# shellcheck disable=SC2086 # a list of packages
for names; do apt-get -c "$T/apt.conf" -qq -y --no-install-recommends --print-uris install $names || exit; done
