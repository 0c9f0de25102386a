#!/bin/sh
# Builds the documentation as a site, in docs/.vitepress/dist. Links that lead nowhere are errors.
set -eu
cd "$(dirname "$0")/../docs"
if ! command -v npm >/dev/null; then
	echo "installing npm"
	apt-get install -y --no-install-recommends npm >/dev/null
fi
npm ci --no-audit --no-fund --loglevel=error
npx --no-install vitepress build .
