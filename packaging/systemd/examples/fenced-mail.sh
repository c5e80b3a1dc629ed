#!/bin/sh
# Mails what a person wants to know: a run began, ended, waits or is Held; a refusal that needs a person; events that are lost. fencectl
# events --exec runs it for each event; fenced-mail.service says how to install it, and to whom it writes (MAILTO).
#
# Exit status 0 takes the event. With any other, fencectl runs this again for the same event, at last every minute.
set -eu

case $FENCED_EVENT in
Started | Missed) ;;
Step)
	case $FENCED_STEP in
	Done | Held | Waiting | Aborted | Reprovisioned) ;;
	*) exit 0 ;;
	esac
	;;
Refused) [ "$FENCED_CLASS" = person ] || exit 0 ;;
*) exit 0 ;;
esac

target=${FENCED_NODE:-${FENCED_MACHINE:-fenced}}
# Others wrote some of this: a header has plain characters only, and a bounded number of them.
subject=$(printf '%s: %s %s %s' "$target" "$FENCED_EVENT" "$FENCED_STEP" "$FENCED_REASON" | LC_ALL=C tr -cd ' -~' | cut -c 1-150)
{
	printf 'To: %s\nSubject: [fenced] %s\n' "$MAILTO" "$subject"
	printf 'Auto-Submitted: auto-generated\nMIME-Version: 1.0\nContent-Type: text/plain; charset=utf-8\nContent-Transfer-Encoding: 8bit\n\n'
	printf '%s\n\n' "$FENCED_MESSAGE"
	printf 'time     %s\ncluster  %s\nnode     %s\nmachine  %s\nrun      %s\nstep     %s\nreason   %s\n' \
		"$FENCED_AT" "$FENCED_CLUSTER" "$FENCED_NODE" "$FENCED_MACHINE" "$FENCED_RUN" "$FENCED_STEP" "$FENCED_REASON"
	printf '\nOn this host: fencectl status; fencectl timeline %s\n' "${FENCED_RUN:-$target}"
} | "${SENDMAIL:-/usr/sbin/sendmail}" -i -- "$MAILTO"
