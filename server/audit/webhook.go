package audit

import (
	"bytes"
	"context"
	"time"

	"orrery.dev/server/webhook"
)

// Webhook is where events are sent, and how.
type Webhook struct {
	File         string // in kubeconfig format
	InitialPause time.Duration
	Mode         string
	Batch        Batch
	Truncate     Truncate
}

// DefaultWebhook is upstream's.
func DefaultWebhook() Webhook {
	return Webhook{
		InitialPause: 10 * time.Second, Mode: ModeBatch, Truncate: DefaultTruncate(),
		Batch: Batch{Buffer: 10000, MaxSize: 400, MaxWait: 30 * time.Second, Throttle: true, QPS: 10, Burst: 15},
	}
}

func (w *Webhook) validate() error {
	if err := validateMode("webhook", w.Mode, w.Batch); err != nil {
		return err
	}
	return w.Truncate.validate("webhook")
}

func (w *Webhook) open(m *metrics) (sink, error) {
	// Whatever went wrong, an event is worth another attempt.
	client, err := webhook.Open(w.File, webhook.Options{FirstPause: w.InitialPause, RetryAll: true})
	if err != nil {
		return nil, err
	}
	return (&delivery{
		name: "webhook", mode: w.Mode, truncate: w.Truncate, batch: w.Batch, parallel: true, metrics: m,
		write: func(ctx context.Context, all []*record) error {
			_, err := client.PostBytes(ctx, list(all))
			return err
		},
	}).open(), nil
}

// list is the events as an EventList, spliced from their bytes.
func list(all []*record) []byte {
	var b bytes.Buffer
	b.WriteString(`{"kind":"EventList","apiVersion":"audit.k8s.io/v1","metadata":{},"items":[`)
	for i, r := range all {
		if i > 0 {
			b.WriteByte(',')
		}
		b.Write(r.json)
	}
	b.WriteString("]}\n")
	return b.Bytes()
}
