package nodeagent

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	crilogs "k8s.io/cri-client/pkg/logs"
	"k8s.io/utils/ptr"
)

// logLab is a container's log as a runtime writes it, and somebody who follows it.
type logLab struct {
	*testing.T
	path    string
	n       int // lines so far
	stopped atomic.Bool
}

func newLogLab(t *testing.T) *logLab {
	t.Parallel()
	l := &logLab{T: t, path: filepath.Join(t.TempDir(), "0.log")}
	l.create().Close()
	return l
}

func (l *logLab) create() *os.File {
	f, err := os.OpenFile(l.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
	l.check(err)
	return f
}

func (l *logLab) check(err error) {
	l.Helper()
	if err != nil {
		l.Fatal(err)
	}
}

// line writes "line N" to a file of the log.
func (l *logLab) line(f *os.File) {
	l.n++
	l.raw(f, fmt.Sprintf("%s stdout F line %d\n", time.Now().UTC().Format(time.RFC3339Nano), l.n))
}

func (l *logLab) raw(f *os.File, text string) {
	_, err := f.WriteString(text)
	l.check(err)
}

// follow begins to follow; what arrives comes through the pipe, which ends with the log.
func (l *logLab) follow(opts crilogs.LogOptions) *io.PipeReader {
	opts.Follow = true
	r, w := io.Pipe()
	go func() {
		w.CloseWithError(followLog(l.Context(), l.path, func(context.Context) bool { return !l.stopped.Load() }, &opts, w, w))
	}()
	return r
}

// next reads the next line.
func (l *logLab) next(r io.Reader, want string) {
	l.Helper()
	got := make([]byte, len(want))
	if _, err := io.ReadFull(r, got); err != nil || string(got) != want {
		l.Fatalf("got %q (%v), want %q", got, err, want)
	}
}

// end stops the container, and reads what is left.
func (l *logLab) end(r io.Reader, want string) {
	l.Helper()
	l.stopped.Store(true)
	got, err := io.ReadAll(r)
	l.check(err)
	if string(got) != want {
		l.Errorf("got %q, want %q", got, want)
	}
}

// A runtime makes the new file, and goes on in the old one for a moment.
func TestFollowReadsARotatedLogToItsEnd(t *testing.T) {
	l := newLogLab(t)
	old := l.create()
	l.line(old)
	r := l.follow(crilogs.LogOptions{})
	l.next(r, "line 1\n")
	l.check(os.Rename(l.path, l.path+".20260101-000000"))
	fresh := l.create()
	l.line(old)
	l.next(r, "line 2\n")
	l.line(old)
	l.line(fresh)
	l.next(r, "line 3\nline 4\n")
	l.line(fresh)
	l.end(r, "line 5\n")
}

// Nobody reads while the log is rotated again and again, and what is being read
// is compressed.
func TestFollowMissesNoFile(t *testing.T) {
	l := newLogLab(t)
	f := l.create()
	l.line(f)
	l.line(f)
	r := l.follow(crilogs.LogOptions{})
	l.next(r, "line 1\n") // the second waits
	for i := range 3 {
		rotated := fmt.Sprintf("%s.20260101-00000%d", l.path, i)
		l.check(os.Rename(l.path, rotated))
		f = l.create()
		l.line(f)
		if i < 2 {
			l.check(compress(rotated))
		}
	}
	l.end(r, "line 2\nline 3\nline 4\nline 5\n")
}

func TestFollowOptions(t *testing.T) {
	stamp := func(s int) string { return fmt.Sprintf("2026-01-01T00:00:0%d.000000000Z", s) }
	text := stamp(1) + " stdout F one\n" + stamp(2) + " stderr P two, in\n" + stamp(3) + " stderr F  parts\nnot a line of a log\n" + stamp(4) + " stdout F three\n" + stamp(5) + " stdout F hal"
	for name, c := range map[string]struct {
		opts crilogs.LogOptions
		want string
	}{
		"all":        {want: "one\ntwo, in parts\nthree\n"},
		"the last":   {crilogs.LogOptions{TailLines: ptr.To[int64](1)}, "three\n"},
		"none":       {crilogs.LogOptions{TailLines: ptr.To[int64](0)}, ""},
		"more":       {crilogs.LogOptions{TailLines: ptr.To[int64](99)}, "one\ntwo, in parts\nthree\n"},
		"since":      {crilogs.LogOptions{Since: time.Date(2026, 1, 1, 0, 0, 4, 0, time.UTC)}, "three\n"},
		"few bytes":  {crilogs.LogOptions{LimitBytes: ptr.To[int64](6)}, "one\ntw"},
		"timestamps": {crilogs.LogOptions{Timestamp: true}, stamp(1) + " one\n" + stamp(2) + " two, in parts\n" + stamp(4) + " three\n"},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLogLab(t)
			f := l.create()
			l.raw(f, text)
			l.end(l.follow(c.opts), c.want)
		})
	}
}
