package cmd

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"orrery.dev/server/auth"
)

// authzFlags say who decides what callers may do.
type authzFlags struct {
	auth.AuthorizationFlags
	set    *pflag.FlagSet // to know which were given
	config string
}

func (a *authzFlags) flags(f *pflag.FlagSet) {
	a.set = f
	f.StringSliceVar(&a.Modes, "authorization-mode", []string{auth.ModeNode, auth.ModeRBAC}, "who decides, in order: "+strings.Join(auth.Modes, ", "))
	f.StringVar(&a.PolicyFile, "authorization-policy-file", "", "file with a policy per line, in JSON, for mode ABAC")
	f.StringVar(&a.config, "authorization-config", "", "file (AuthorizationConfiguration) that says who decides; it is followed")
	f.StringVar(&a.WebhookFile, "authorization-webhook-config-file", "", "ask the service that this file (kubeconfig) points to, in mode Webhook")
	f.StringVar(&a.WebhookVersion, "authorization-webhook-version", "v1beta1", "version of the SubjectAccessReviews that it is asked by")
	f.DurationVar(&a.AuthorizedTTL, "authorization-webhook-cache-authorized-ttl", 5*time.Minute, "how long it is remembered that it has allowed something")
	f.DurationVar(&a.UnauthorizedTTL, "authorization-webhook-cache-unauthorized-ttl", 30*time.Second, "how long it is remembered that it has not")
}

// authorizerConfig is what the flags ask for.
func (a *authzFlags) authorizerConfig(source auth.Source, log *slog.Logger) (auth.AuthorizerConfig, error) {
	c := auth.AuthorizerConfig{Source: source, Log: log, PolicyFile: a.PolicyFile}
	var err error
	if c.ServerID, err = serverID(); err != nil {
		return c, err
	}
	if a.config == "" {
		c.Configuration, err = a.Configuration()
		return c, err
	}
	given := a.set.Changed("authorization-mode")
	a.set.Visit(func(f *pflag.Flag) { given = given || strings.HasPrefix(f.Name, "authorization-webhook-") })
	if given {
		return c, errors.New("--authorization-config can not be specified when --authorization-mode or --authorization-webhook-* flags are defined")
	}
	if c.Loaded, err = os.ReadFile(a.config); err != nil {
		return c, fmt.Errorf("--authorization-config: %w", err)
	}
	c.File = a.config
	if c.Configuration, err = auth.ParseAuthorization(c.Loaded); err != nil {
		return c, fmt.Errorf("--authorization-config: %w", err)
	}
	return c, nil
}

// allowsAll reports whether nobody is refused anything. Anonymous callers must
// not get that far.
func allowsAll(c auth.AuthorizerConfig) bool {
	for _, a := range c.Configuration.Authorizers {
		if string(a.Type) == auth.ModeAlwaysAllow {
			return true
		}
	}
	return false
}
