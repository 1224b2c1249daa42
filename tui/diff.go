package tui

import (
	"fmt"
	"strings"
)

// diffLines are the lines that one text has and another has not, in their order,
// with - and + before them.
func diffLines(was, now []string) (out []string) {
	for len(was) > 0 && len(now) > 0 && was[0] == now[0] {
		was, now = was[1:], now[1:]
	}
	for len(was) > 0 && len(now) > 0 && was[len(was)-1] == now[len(now)-1] {
		was, now = was[:len(was)-1], now[:len(now)-1]
	}
	// common[i][j] is how many lines was[i:] and now[j:] have in common.
	common := make([][]int, len(was)+1)
	for i := range common {
		common[i] = make([]int, len(now)+1)
	}
	for i := len(was) - 1; i >= 0; i-- {
		for j := len(now) - 1; j >= 0; j-- {
			if common[i][j] = max(common[i+1][j], common[i][j+1]); was[i] == now[j] {
				common[i][j] = common[i+1][j+1] + 1
			}
		}
	}
	i, j := 0, 0
	for i < len(was) || j < len(now) {
		switch {
		case i < len(was) && j < len(now) && was[i] == now[j]:
			i, j = i+1, j+1
		case j == len(now) || i < len(was) && common[i+1][j] >= common[i][j+1]:
			out, i = append(out, "- "+was[i]), i+1
		default:
			out, j = append(out, "+ "+now[j]), j+1
		}
	}
	return out
}

// shownChanges are the first lines that differ between two texts, for a dialog.
func shownChanges(was, now string) []string {
	changes := diffLines(strings.Split(was, "\n"), strings.Split(now, "\n"))
	const most = 12
	if more := len(changes) - most; more > 1 {
		changes = append(changes[:most], fmt.Sprintf("… %d more", more))
	}
	for i, line := range changes {
		changes[i] = cutText(plainText(line), 70)
	}
	return changes
}
