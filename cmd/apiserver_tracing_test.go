package cmd

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTracingConfiguration(t *testing.T) {
	const head = "apiVersion: apiserver.config.k8s.io/v1beta1\nkind: TracingConfiguration\n"
	for _, c := range []struct{ content, fault string }{
		{head + "endpoint: localhost:4317\nsamplingRatePerMillion: 100\n", ""},
		{head, ""},
		{head + "samplingRatePerMillion: 1000001\n", "samplingRatePerMillion"},
		{head + "endpont: x\n", "endpont"},
		{strings.Replace(head, "TracingConfiguration", "AuthenticationConfiguration", 1), "not a TracingConfiguration"},
	} {
		file := filepath.Join(t.TempDir(), "tracing.yaml")
		if err := os.WriteFile(file, []byte(c.content), 0o600); err != nil {
			t.Fatal(err)
		}
		f := tracingFlags{file: file}
		_, err := f.receiver()
		if c.fault == "" && err != nil || c.fault != "" && (err == nil || !strings.Contains(err.Error(), c.fault)) {
			t.Errorf("%s: %v", c.content, err)
		}
	}
	if _, err := (&tracingFlags{}).receiver(); err != nil {
		t.Errorf("without a file: %v", err)
	}
}
