#!/bin/sh
# What a container runs: `bin/...` as it is given, everything else as the words of `geminga`.
#
# It begins as root for one thing: a folder of the machine that the engine made for a volume, or one
# that is empty, belongs to root. It is given to the user 10000, as whom everything runs from then on.
# A container that is started with `--user` begins as that user, and stays it.
set -eu

data=/pulsar/data

case ${1:-} in
    bin/* | ./bin/* | /pulsar/bin/*) ;;
    *) set -- geminga "$@" ;;
esac

if [ "$(id -u)" -ne 0 ]; then
    [ -w "${HOME:-/}" ] || export HOME=/tmp # a user without an entry in /etc/passwd has / for it
    exec "$@"
fi
if [ -d "$data" ] && [ -z "$(ls -A "$data")" ]; then
    chown geminga:geminga "$data"
fi
export HOME=/pulsar
exec setpriv --reuid=geminga --regid=geminga --init-groups "$@"
