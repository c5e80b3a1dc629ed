#!/bin/sh
# Sends one event of fenced to a webhook. fencectl events --exec runs it for each event, with the event as JSON on stdin and its parts
# in FENCED_EVENT, FENCED_NODE and so on; fenced-webhook.service says how to install it.
#
# Where to, and the secret, are in the file that systemd hands over: options of curl, so that neither is on a command line.
#   url = "https://hooks.example.com/fenced"
#   header = "Authorization: Bearer SECRET"
#
# Exit status 0 takes the event. With any other, fencectl runs this again for the same event, at last every minute. Meanwhile fenced
# keeps the newest 2048 events; nothing of it waits for this.
set -u

# What you do not want: each action and each wait of a run is one event.
case $FENCED_EVENT in
Action | Wait) exit 0 ;;
esac

code=$(curl --disable --silent --show-error --config "$CREDENTIALS_DIRECTORY/webhook" --proto =https,http --max-time 20 \
	--header 'Content-Type: application/json' --data-binary @- --output /dev/null --write-out '%{http_code}') || exit 75
case $code in
2*) exit 0 ;;
401 | 403 | 404 | 407 | 408 | 425 | 429 | 5*) # it may heal, or somebody may correct the file
	echo "the webhook answered $code" >&2
	exit 75
	;;
esac
# To send it again would change nothing, and later events would wait behind it.
echo "the webhook answered $code: event $FENCED_SEQ ($FENCED_EVENT $FENCED_NODE) is dropped" >&2
exit 0
