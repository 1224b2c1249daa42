package cmd

import (
	"log/slog"
	"strings"

	"github.com/spf13/pflag"

	"orrery.dev/server/audit"
)

// auditFlags bind upstream's flags of auditing to its configuration.
func auditFlags(c *audit.Config, f *pflag.FlagSet) {
	c.Log, c.Webhook = audit.DefaultLog(), audit.DefaultWebhook()
	f.StringVar(&c.PolicyFile, "audit-policy-file", "", "file (audit.k8s.io/v1 Policy) that says what is recorded; without it nothing is")

	f.StringVar(&c.Log.Path, "audit-log-path", "", "record requests in this file, by --audit-policy-file (-: standard output)")
	f.StringVar(&c.Log.Format, "audit-log-format", c.Log.Format, "json, or legacy: a line of text per event")
	f.IntVar(&c.Log.MaxAge, "audit-log-maxage", c.Log.MaxAge, "days to keep old files (0: for ever)")
	f.IntVar(&c.Log.MaxBackups, "audit-log-maxbackup", c.Log.MaxBackups, "old files to keep (0: all)")
	f.IntVar(&c.Log.MaxSize, "audit-log-maxsize", c.Log.MaxSize, "megabytes from which a new file is begun (0: never)")
	f.BoolVar(&c.Log.Compress, "audit-log-compress", false, "compress old files")
	sinkFlags(f, "log", &c.Log.Mode, &c.Log.Batch, &c.Log.Truncate)

	f.StringVar(&c.Webhook.File, "audit-webhook-config-file", "", "send events to the service that this file (kubeconfig) points to, by --audit-policy-file")
	f.DurationVar(&c.Webhook.InitialPause, "audit-webhook-initial-backoff", c.Webhook.InitialPause, "pause before the second attempt to send events")
	sinkFlags(f, "webhook", &c.Webhook.Mode, &c.Webhook.Batch, &c.Webhook.Truncate)
}

func sinkFlags(f *pflag.FlagSet, name string, mode *string, b *audit.Batch, t *audit.Truncate) {
	prefix := "audit-" + name + "-"
	f.StringVar(mode, prefix+"mode", *mode, "whether requests wait for it: "+strings.Join(audit.Modes, ", "))
	f.IntVar(&b.Buffer, prefix+"batch-buffer-size", b.Buffer, "events that may wait to be sent; more are dropped (mode batch)")
	f.IntVar(&b.MaxSize, prefix+"batch-max-size", b.MaxSize, "events of a batch (mode batch)")
	f.DurationVar(&b.MaxWait, prefix+"batch-max-wait", b.MaxWait, "how long to wait for a batch to fill (mode batch)")
	f.BoolVar(&b.Throttle, prefix+"batch-throttle-enable", b.Throttle, "limit the rate of batches (mode batch)")
	f.Float32Var(&b.QPS, prefix+"batch-throttle-qps", b.QPS, "batches per second (mode batch)")
	f.IntVar(&b.Burst, prefix+"batch-throttle-burst", b.Burst, "batches at once, after a quiet time (mode batch)")
	f.BoolVar(&t.Enabled, prefix+"truncate-enabled", t.Enabled, "make large events smaller")
	f.Int64Var(&t.MaxEvent, prefix+"truncate-max-event-size", t.MaxEvent, "bytes from which events lose their objects")
	f.Int64Var(&t.MaxBatch, prefix+"truncate-max-batch-size", t.MaxBatch, "bytes of a batch")
	// There is one version.
	f.String(prefix+"version", "audit.k8s.io/v1", "always audit.k8s.io/v1")
}

// openAudit makes what the flags ask for; nil: nothing is recorded.
func openAudit(c audit.Config, log *slog.Logger) (*audit.Auditor, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if c.PolicyFile == "" && (c.Log.Path != "" || c.Webhook.File != "") {
		log.Warn("nothing is audited without --audit-policy-file")
	}
	return audit.New(c)
}
