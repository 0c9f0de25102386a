package config

import "testing"

// TestCalendar has times as systemd.time(7) lists them, and such as people write who think of cron.
func TestCalendar(t *testing.T) {
	for value, want := range map[string]bool{
		"daily": true, "hourly": true, "weekly UTC": true, "02:00": true, "*:0/15": true, "*-*-* 02:00:00": true, "Sun *-*-* 03:30:00": true, "Sat,Thu,Mon..Wed,Sat..Sun 03:00": true,
		"Mon,Sun 12-*-* 2,1:23": true, "Wed *-1": true, "2012-10-15 1:2:3": true, "*-02~03": true, "2003-03-05 05:40:23.4200004/3.1700005": true, "*-*-1..7 18:00:00 Asia/Tokyo": true, "Mon *-05~07/1": true,
		"0 2 * * *": false, "@daily": false, "2 am": false, "every day": false, "*": false, "daily\nExecStart=x": false, "02:00;": false,
	} {
		if is := calendar.MatchString(value); is != want {
			t.Errorf("%q: %v", value, is)
		}
	}
}
