#!/bin/sh
# A console that asks who is there and switches one host, as fence_alom knows it. It stands in for ssh and its far end.
state=/tmp/terminal-off
stty -echo # only a terminal can
printf 'login: '
read -r _
printf 'password: '
read -r _
printf 'sc> '
while read -r command; do
	case $command in
	poweroff*) : >$state ;;
	poweron) rm -f $state ;;
	showplatform) if [ -e $state ]; then echo Standby; else echo Running; fi ;;
	logout) exit ;;
	*) continue ;;
	esac
	printf 'sc> '
done
