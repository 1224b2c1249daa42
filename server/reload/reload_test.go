package reload

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	dto "github.com/prometheus/client_model/go"
)

func TestFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "config")
		write := func(text string) {
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		write("first")
		m := NewMetrics("test", "server", []byte("first"))
		file := File{Path: path, Interval: time.Minute, Loaded: []byte("first"), Metrics: m, Log: slog.New(slog.DiscardHandler)}
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		defer running.Wait()
		defer cancel()
		var seen []string
		ill := true
		running.Go(func() {
			file.Follow(ctx, func(_ context.Context, raw []byte) (bool, error) {
				seen = append(seen, string(raw))
				switch string(raw) {
				case "nonsense":
					return false, errors.New("nonsense")
				case "ill":
					if ill {
						ill = false
						return true, errors.New("not yet")
					}
				}
				return false, nil
			})
		})
		for _, text := range []string{"second", "nonsense", "ill", "second"} {
			write(text)
			time.Sleep(2*time.Minute + time.Second)
		}
		os.Remove(path)
		time.Sleep(time.Minute)
		synctest.Wait()
		if want := []string{"second", "nonsense", "ill", "ill", "second"}; !slices.Equal(seen, want) {
			t.Errorf("applied %v, want %v", seen, want)
		}
		for status, want := range map[string]float64{"success": 3, "failure": 3} {
			var got dto.Metric
			if m.total.WithLabelValues(status, m.server).Write(&got); got.GetCounter().GetValue() < want {
				t.Errorf("%s: %v, want %v", status, &got, want)
			}
		}
	})
}
