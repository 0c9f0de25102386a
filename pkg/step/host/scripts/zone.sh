# shellcheck shell=sh
# The time zone. Input: ZONE.

is_set() {
	case "$(readlink /etc/localtime)" in */zoneinfo/"$ZONE") ;; *) return 1 ;; esac
	[ ! -f /etc/timezone ] || [ "$(cat /etc/timezone)" = "$ZONE" ]
}
set_zone() {
	if [ ! -e "/usr/share/zoneinfo/$ZONE" ]; then
		echo "no time zone $ZONE in /usr/share/zoneinfo (Debian 13 and Ubuntu 24.04 have old names in tzdata-legacy)" >&2; exit 1
	fi
	keep /etc/localtime; ln -sfT "../usr/share/zoneinfo/$ZONE" /etc/localtime.kubexm; mv -fT /etc/localtime.kubexm /etc/localtime
	if [ -f /etc/timezone ]; then keep /etc/timezone; echo "$ZONE" >/etc/timezone.kubexm; mv -fT /etc/timezone.kubexm /etc/timezone; fi
}
