package cmd

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	"k8s.io/apiserver/pkg/storage/value"

	"orrery.dev/server"
	"orrery.dev/server/encryption"
)

// encryptionFlags say how values are encrypted in etcd.
type encryptionFlags struct {
	file   string
	reload bool
}

func (f *encryptionFlags) flags(set *pflag.FlagSet) {
	set.StringVar(&f.file, "encryption-provider-config", "", "file (EncryptionConfiguration) that says what is encrypted in etcd, and how (default: nothing is)")
	set.BoolVar(&f.reload, "encryption-provider-config-automatic-reload", false, "follow changes of that file")
}

// sealing is what the flags have made. The zero value encrypts nothing.
type sealing struct{ *encryption.Encryption }

func (f *encryptionFlags) open(log *slog.Logger) (sealing, error) {
	if f.file == "" {
		if f.reload {
			return sealing{}, errors.New("--encryption-provider-config-automatic-reload must be set with --encryption-provider-config")
		}
		return sealing{}, nil
	}
	id, err := serverID()
	if err != nil {
		return sealing{}, err
	}
	e, err := encryption.New(encryption.Config{File: f.file, Reload: f.reload, ServerID: id, Log: log})
	if err != nil {
		return sealing{}, fmt.Errorf("--encryption-provider-config: %w", err)
	}
	return sealing{e}, nil
}

// serverID tells this server's metrics from those of others, as upstream makes it
// of the host's name.
func serverID() (string, error) {
	host, err := os.Hostname()
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(host))
	return "apiserver-" + strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:16])), nil
}

func (s sealing) transformers() value.ResourceTransformers {
	if s.Encryption == nil {
		return nil
	}
	return s.Encryption
}

// health is the check of the plugins that keep keys.
func (s sealing) health() []server.HealthCheck {
	if s.Encryption == nil || !s.Watched() {
		return nil
	}
	return []server.HealthCheck{{Name: "kms-providers", NotLive: true, Run: s.Check}}
}

func (s sealing) metrics() []prometheus.Collector {
	if s.Encryption == nil {
		return nil
	}
	return s.Collectors()
}

func (s sealing) run(ctx context.Context) error {
	if s.Encryption == nil {
		<-ctx.Done()
		return nil
	}
	return s.Run(ctx)
}
