package main

import "testing"

func TestChoose(t *testing.T) {
	for variable, want := range map[string]string{"data_1=x": busybox, "EMPTY=": busybox, "data-1=x": bash, "p.q=x": bash, "1x=": bash} {
		if got := choose([]string{"PATH=/bin", variable}); got != want {
			t.Errorf("with %s: %s, want %s", variable, got, want)
		}
	}
}
