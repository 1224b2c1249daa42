package api

import (
	"time"

	"k8s.io/apimachinery/pkg/util/duration"
)

// HumanDuration is a duration in kubectl's words: "5m", "3d2h".
func HumanDuration(d time.Duration) string { return duration.HumanDuration(d) }

// Age is the duration since a time, "<unknown>" for none.
func Age(t, now time.Time) string {
	if t.IsZero() {
		return "<unknown>"
	}
	return HumanDuration(now.Sub(t))
}
