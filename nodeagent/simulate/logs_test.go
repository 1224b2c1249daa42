package simulate

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	crilogs "k8s.io/cri-client/pkg/logs"
)

func readLog(t *testing.T, r *Runtime, id string, opts crilogs.LogOptions) string {
	t.Helper()
	var b bytes.Buffer
	if err := r.ReadLog(t.Context(), id, &opts, &b, &b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestLogs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, err := New("10.1.0.0/24")
		if err != nil {
			t.Fatal(err)
		}
		_, id := run(t, r, nil, map[string]string{RunFor: "30s", LogRate: "1"})
		time.Sleep(10*time.Second + 500*time.Millisecond)
		all := readLog(t, r, id, crilogs.LogOptions{})
		lines := strings.SplitAfter(strings.TrimSuffix(all, "\n"), "\n")
		if len(lines) < 10 || len(lines) > 11 || !strings.Contains(lines[0], "simulated") {
			t.Fatalf("after ten seconds, at a line a second:\n%s", all)
		}
		if again := readLog(t, r, id, crilogs.LogOptions{}); again != all {
			t.Errorf("a second look differs:\n%s", again)
		}
		two := int64(2)
		if got, want := readLog(t, r, id, crilogs.LogOptions{TailLines: &two}), strings.Join(lines[len(lines)-2:], "")+"\n"; got != want {
			t.Errorf("tail 2: got %q, want %q", got, want)
		}
		limit := int64(30)
		if got := readLog(t, r, id, crilogs.LogOptions{LimitBytes: &limit}); got != all[:30] {
			t.Errorf("limit 30: got %q", got)
		}
		if got := readLog(t, r, id, crilogs.LogOptions{Since: time.Now().Add(-3 * time.Second)}); !strings.HasSuffix(all, got) || len(strings.Split(got, "\n")) > 5 {
			t.Errorf("of three seconds: %q", got)
		}
		if got := readLog(t, r, id, crilogs.LogOptions{Timestamp: true, TailLines: &two}); !strings.HasPrefix(got, "2000-01-01T00:00:") {
			t.Errorf("with times: %q", got)
		}
		followed := readLog(t, r, id, crilogs.LogOptions{Follow: true})
		if !strings.HasPrefix(followed, all) || !strings.HasSuffix(followed, "exit code 0 (Completed)\n") {
			t.Errorf("followed to the end: %q", followed)
		}
		if got := readLog(t, r, id, crilogs.LogOptions{}); got != followed {
			t.Errorf("what was followed and what is kept differ:\n%s\n%s", followed, got)
		}
	})
}

// Whoever follows a log sees the same end of it, however many look while it comes.
func TestAllWhoFollowSeeTheSameEnd(t *testing.T) {
	r, err := New("10.1.0.0/24")
	if err != nil {
		t.Fatal(err)
	}
	for range 100 {
		_, id := run(t, r, nil, map[string]string{RunFor: "10ms", LogRate: "100000"})
		var seen [16]string
		var readers sync.WaitGroup
		for i := range seen {
			readers.Go(func() { seen[i] = readLog(t, r, id, crilogs.LogOptions{Follow: true}) })
		}
		readers.Wait()
		for _, s := range seen {
			both := min(len(s), len(seen[0])) // who comes late does not see what was rotated away
			if s[len(s)-both:] != seen[0][len(seen[0])-both:] || !strings.HasSuffix(s, "exit code 0 (Completed)\n") {
				t.Fatalf("one sees\n%s\nand another\n%s", s[max(len(s)-300, 0):], seen[0][max(len(seen[0])-300, 0):])
			}
		}
	}
}

func TestFollowEndsWithItsReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, err := New("10.1.0.0/24")
		if err != nil {
			t.Fatal(err)
		}
		_, id := run(t, r, nil, map[string]string{LogRate: "0"})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var b bytes.Buffer
		if err := r.ReadLog(ctx, id, &crilogs.LogOptions{Follow: true}, &b, &b); err != nil || strings.Count(b.String(), "\n") != 1 {
			t.Errorf("got %q, %v; want the first line only", b.String(), err)
		}
	})
}

func TestOldLinesAreRotatedAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, err := New("10.1.0.0/24")
		if err != nil {
			t.Fatal(err)
		}
		_, id := run(t, r, nil, map[string]string{LogRate: "1000"})
		time.Sleep(time.Hour)
		if n := strings.Count(readLog(t, r, id, crilogs.LogOptions{}), "\n"); n != keptLines {
			t.Errorf("%d lines, want %d", n, keptLines)
		}
	})
}
