package cmd

import (
	"fmt"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"

	"orrery.dev/server/admission"
)

// admissionFlags say which admission plugins run, and how they are configured.
type admissionFlags struct {
	enable, disable, only []string
	file                  string
	notReady, unreachable int64
}

func (o *admissionFlags) flags(f *pflag.FlagSet) {
	f.StringSliceVar(&o.enable, "enable-admission-plugins", nil, "admission plugins that run beside those that do by default, in any order")
	f.StringSliceVar(&o.disable, "disable-admission-plugins", nil, "admission plugins that run by default and are not to")
	f.StringSliceVar(&o.only, "admission-control", nil, "all admission plugins that run")
	_ = f.MarkDeprecated("admission-control", "Use --enable-admission-plugins or --disable-admission-plugins instead. Will be removed in a future version.") // it is there
	f.StringVar(&o.file, "admission-control-config-file", "", "file (AdmissionConfiguration) with configurations of admission plugins")
	f.Int64Var(&o.notReady, "default-not-ready-toleration-seconds", 300, "how long pods that say nothing about it stay on a node that is not ready")
	f.Int64Var(&o.unreachable, "default-unreachable-toleration-seconds", 300, "how long pods that say nothing about it stay on a node that cannot be reached")
}

// tolerations are the seconds that pods stay on a node, by the key of its taint.
func (o *admissionFlags) tolerations() map[string]int64 {
	return map[string]int64{corev1.TaintNodeNotReady: o.notReady, corev1.TaintNodeUnreachable: o.unreachable}
}

func (o *admissionFlags) choice() (admission.Choice, error) {
	c := admission.Choice{Enable: o.enable, Disable: o.disable, Only: o.only}
	if o.file == "" {
		return c, nil
	}
	var err error
	if c.Configurations, err = admission.ReadConfigurations(o.file); err != nil {
		return c, fmt.Errorf("--admission-control-config-file: failed to read plugin config: %w", err)
	}
	return c, nil
}
