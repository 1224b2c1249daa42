package cmd

import (
	"fmt"

	"github.com/spf13/pflag"

	"orrery.dev/server/admission"
)

// admissionFlags say which admission plugins run, and how they are configured.
type admissionFlags struct {
	enable, disable, only []string
	file                  string
}

func (o *admissionFlags) flags(f *pflag.FlagSet) {
	f.StringSliceVar(&o.enable, "enable-admission-plugins", nil, "admission plugins that run beside those that do by default, in any order")
	f.StringSliceVar(&o.disable, "disable-admission-plugins", nil, "admission plugins that run by default and are not to")
	f.StringSliceVar(&o.only, "admission-control", nil, "all admission plugins that run")
	_ = f.MarkDeprecated("admission-control", "Use --enable-admission-plugins or --disable-admission-plugins instead. Will be removed in a future version.") // it is there
	f.StringVar(&o.file, "admission-control-config-file", "", "file (AdmissionConfiguration) with configurations of admission plugins")
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
