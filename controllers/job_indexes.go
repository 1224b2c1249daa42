package controllers

import (
	"slices"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
)

// indexSet is a set of completion indexes, as the sorted intervals in which a
// Job's status writes them: "0,2-4".
type indexSet [][2]int

func parseIndexes(text string, below int) indexSet {
	var out indexSet
	for _, part := range strings.Split(text, ",") {
		from, to, isRange := strings.Cut(part, "-")
		a, err := strconv.Atoi(from)
		if err != nil {
			continue
		}
		b := a
		if isRange {
			if b, err = strconv.Atoi(to); err != nil {
				continue
			}
		}
		if a >= below {
			break
		}
		out = append(out, [2]int{a, min(b, below-1)})
	}
	return out
}

func (s indexSet) String() string {
	var parts []string
	for _, r := range s {
		switch {
		case r[0] == r[1]:
			parts = append(parts, strconv.Itoa(r[0]))
		case r[1] == r[0]+1:
			parts = append(parts, strconv.Itoa(r[0]), strconv.Itoa(r[1]))
		default:
			parts = append(parts, strconv.Itoa(r[0])+"-"+strconv.Itoa(r[1]))
		}
	}
	return strings.Join(parts, ",")
}

func (s indexSet) has(i int) bool {
	at, found := slices.BinarySearchFunc(s, i, func(r [2]int, i int) int { return r[0] - i })
	return found || at > 0 && i <= s[at-1][1]
}

func (s indexSet) len() int {
	n := 0
	for _, r := range s {
		n += r[1] - r[0] + 1
	}
	return n
}

// with returns the set with more indexes in it.
func (s indexSet) with(more ...int) indexSet {
	all := slices.Clone(s)
	for _, i := range more {
		all = append(all, [2]int{i, i})
	}
	slices.SortFunc(all, func(a, b [2]int) int { return a[0] - b[0] })
	var out indexSet
	for _, r := range all {
		if n := len(out); n > 0 && r[0] <= out[n-1][1]+1 {
			out[n-1][1] = max(out[n-1][1], r[1])
			continue
		}
		out = append(out, r)
	}
	return out
}

// indexOf is a pod's completion index, or -1.
func indexOf(pod *corev1.Pod) int {
	n, err := strconv.Atoi(pod.Annotations[batchv1.JobCompletionIndexAnnotation])
	if err != nil || n < 0 {
		return -1
	}
	return n
}

func isIndexed(job *batchv1.Job) bool {
	return job.Spec.CompletionMode != nil && *job.Spec.CompletionMode == batchv1.IndexedCompletion
}
