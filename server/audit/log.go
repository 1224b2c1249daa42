package audit

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"gopkg.in/natefinch/lumberjack.v2"
)

// Formats of the file.
const (
	FormatJSON   = "json"
	FormatLegacy = "legacy" // a line of text per event
)

// Log is where the file is, and how it is kept.
type Log struct {
	Path       string // "-" is standard output
	Format     string
	MaxAge     int // days that old files are kept; 0: for ever
	MaxBackups int // old files that are kept; 0: all
	MaxSize    int // megabytes from which a new file is begun; 0: never
	Compress   bool
	Mode       string
	Batch      Batch
	Truncate   Truncate
}

// DefaultLog is upstream's.
func DefaultLog() Log {
	return Log{
		Format: FormatJSON, MaxAge: 366, MaxBackups: 100, MaxSize: 100, Mode: ModeBlocking,
		Batch: Batch{Buffer: 10000, MaxSize: 1}, Truncate: DefaultTruncate(),
	}
}

func (l *Log) validate() error {
	if err := validateMode("log", l.Mode, l.Batch); err != nil {
		return err
	}
	if err := l.Truncate.validate("log"); err != nil {
		return err
	}
	if l.Format != FormatJSON && l.Format != FormatLegacy {
		return fmt.Errorf(`invalid audit log format %s, allowed formats are "legacy,json"`, l.Format)
	}
	for flag, value := range map[string]int{"maxage": l.MaxAge, "maxbackup": l.MaxBackups, "maxsize": l.MaxSize} {
		if value < 0 {
			return fmt.Errorf("--audit-log-%s %v can't be a negative number", flag, value)
		}
	}
	return nil
}

func (l *Log) open(m *metrics) (sink, error) {
	out, err := l.writer()
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex // lines must not mix
	return (&delivery{
		name: "log", mode: l.Mode, truncate: l.Truncate, batch: l.Batch, metrics: m,
		write: func(_ context.Context, all []*record) error {
			mu.Lock()
			defer mu.Unlock()
			for _, r := range all {
				line := r.line()
				if l.Format == FormatLegacy {
					line = r.text()
				}
				if _, err := out.Write(line); err != nil {
					return err
				}
			}
			return nil
		},
		close: func() {
			if file, ok := out.(io.Closer); ok && out != os.Stdout {
				file.Close()
			}
		},
	}).open(), nil
}

func (l *Log) writer() (io.Writer, error) {
	if l.Path == "-" {
		return os.Stdout, nil
	}
	if err := os.MkdirAll(filepath.Dir(l.Path), 0o700); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(l.Path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	if l.MaxSize == 0 {
		return file, nil
	}
	if err := file.Close(); err != nil {
		return nil, err
	}
	return &lumberjack.Logger{Filename: l.Path, MaxAge: l.MaxAge, MaxBackups: l.MaxBackups, MaxSize: l.MaxSize, Compress: l.Compress}, nil
}

// text is the record as a line of the legacy format.
func (r *record) text() []byte {
	e := r.event
	who, groups := "<none>", "<none>"
	if e.User.Username != "" {
		who = e.User.Username
		if len(e.User.Groups) > 0 {
			groups = quoted(e.User.Groups)
		}
	}
	as, asGroups := "<self>", "<lookup>"
	if u := e.ImpersonatedUser; u != nil {
		as = u.Username
		if u.Groups != nil {
			asGroups = quoted(u.Groups)
		}
	}
	namespace, ip, response := "<none>", "<unknown>", "<deferred>"
	if e.ObjectRef != nil && e.ObjectRef.Namespace != "" {
		namespace = e.ObjectRef.Namespace
	}
	if len(e.SourceIPs) > 0 {
		ip = e.SourceIPs[0]
	}
	if e.ResponseStatus != nil {
		response = strconv.Itoa(int(e.ResponseStatus.Code))
	}
	return fmt.Appendf(nil, "%s AUDIT: id=%q stage=%q ip=%q method=%q user=%q groups=%q as=%q asgroups=%q user-agent=%q namespace=%q uri=%q response=\"%s\"\n",
		e.RequestReceivedTimestamp.Format(time.RFC3339Nano), e.AuditID, e.Stage, ip, e.Verb, who, groups, as, asGroups, e.UserAgent, namespace, e.RequestURI, response)
}

func quoted(all []string) string {
	words := make([]string, len(all))
	for i, word := range all {
		words[i] = strconv.Quote(word)
	}
	return strings.Join(words, ",")
}
