package tui

import (
	"cmp"
	"strconv"
	"strings"
)

// compareCells orders two cells as a person would: numbers, quantities and
// ratios by value, runs of digits within text too ("web-9" before "web-10").
func compareCells(a, b string) int {
	if a == b {
		return 0
	}
	x, okX := number(a)
	y, okY := number(b)
	switch {
	case okX && okY:
		if c := cmp.Compare(x, y); c != 0 {
			return c
		}
	case okX:
		return -1
	case okY:
		return 1
	}
	return natural(a, b)
}

// absent is 1 for a cell that has no value to compare.
func absent(cell string) int {
	switch cell {
	case "", "-", "n/a", "<none>", "<unknown>", "<unset>":
		return 1
	}
	return 0
}

var unitSizes = map[string]float64{
	"": 1, "n": 1e-9, "u": 1e-6, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18,
	"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40, "Pi": 1 << 50, "Ei": 1 << 60, "%": 1,
}

// number reads "12", "3 (5m ago)", "1/2", "250m", "64Mi".
func number(s string) (float64, bool) {
	s, _, _ = strings.Cut(s, " ")
	if have, want, ok := strings.Cut(s, "/"); ok {
		h, err1 := strconv.ParseFloat(have, 64)
		w, err2 := strconv.ParseFloat(want, 64)
		if err1 == nil && err2 == nil {
			return h + w/1e6, true // ready first, then size
		}
		return 0, false
	}
	end := 0
	for end < len(s) && (s[end] >= '0' && s[end] <= '9' || s[end] == '.' || end == 0 && s[end] == '-') {
		end++
	}
	v, err := strconv.ParseFloat(s[:end], 64)
	if err != nil {
		return 0, false
	}
	unit, ok := unitSizes[s[end:]]
	return v * unit, ok
}

// natural compares text with runs of digits by their value.
func natural(a, b string) int {
	if a == b {
		return 0
	}
	for a != "" && b != "" {
		da, db := digits(a), digits(b)
		if da > 0 && db > 0 {
			na, nb := strings.TrimLeft(a[:da], "0"), strings.TrimLeft(b[:db], "0")
			if c := cmp.Compare(len(na), len(nb)); c != 0 {
				return c
			}
			if c := strings.Compare(na, nb); c != 0 {
				return c
			}
			a, b = a[da:], b[db:]
			continue
		}
		if a[0] != b[0] {
			return cmp.Compare(a[0], b[0])
		}
		a, b = a[1:], b[1:]
	}
	return cmp.Compare(len(a), len(b))
}

func digits(s string) int {
	n := 0
	for n < len(s) && s[n] >= '0' && s[n] <= '9' {
		n++
	}
	return n
}

// compareAges orders durations in kubectl's words: "45s", "4m39s", "2d3h".
func compareAges(a, b string) int { return cmp.Compare(ageSeconds(a), ageSeconds(b)) }

func ageSeconds(s string) float64 {
	total := 0.0
	for s != "" {
		n := digits(s)
		if n == 0 || n == len(s) {
			return total
		}
		v, err := strconv.ParseFloat(s[:n], 64)
		if err != nil {
			return total
		}
		total += v * map[byte]float64{'s': 1, 'm': 60, 'h': 3600, 'd': 86400, 'y': 365 * 86400}[s[n]]
		s = s[n+1:]
	}
	return total
}
