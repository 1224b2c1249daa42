package auth

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/apis/apiserver/validation"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	authorizationcel "k8s.io/apiserver/pkg/authorization/cel"
)

// Modes of authorisation, as configurations name them.
const (
	ModeNode        = "Node"
	ModeRBAC        = "RBAC"
	ModeWebhook     = "Webhook"
	ModeABAC        = "ABAC"
	ModeAlwaysAllow = "AlwaysAllow"
	ModeAlwaysDeny  = "AlwaysDeny"
)

// Modes lists them.
var Modes = []string{ModeAlwaysAllow, ModeAlwaysDeny, ModeABAC, ModeWebhook, ModeRBAC, ModeNode}

// link is one step of the chain. What none of them allows is refused.
type link struct {
	kind, name string
	authorize  func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error)
	rules      func(context.Context, user.Info, string) ([]authorizer.ResourceRuleInfo, []authorizer.NonResourceRuleInfo, bool, error)
}

// ParseAuthorization reads and checks an AuthorizationConfiguration. required are
// the modes that it must have.
func ParseAuthorization(raw []byte, required ...string) (*apiserver.AuthorizationConfiguration, error) {
	config, err := decodeConfig[*apiserver.AuthorizationConfiguration](raw)
	if err != nil {
		return nil, fmt.Errorf("failed to load AuthorizationConfiguration from file: %w", err)
	}
	errs := validation.ValidateAuthorizationConfiguration(authorizationcel.NewDefaultCompiler(), nil, config, sets.New(Modes...), sets.New(ModeWebhook))
	if len(errs) > 0 {
		return nil, errs.ToAggregate()
	}
	var problems []error
	missing := slices.Clone(required)
	for _, a := range config.Authorizers {
		if string(a.Type) == ModeWebhook {
			continue
		}
		missing = slices.DeleteFunc(missing, func(mode string) bool { return mode == string(a.Type) })
		if want := strings.ToLower(string(a.Type)); a.Name != want {
			problems = append(problems, fmt.Errorf("expected name %s for authorizer %s instead of %s", want, a.Type, a.Name))
		}
	}
	if len(missing) > 0 {
		problems = append(problems, fmt.Errorf("missing required types: %v", missing))
	}
	return config, errors.Join(problems...)
}

// AuthorizationFlags are kube-apiserver's way to say the same without a file.
type AuthorizationFlags struct {
	Modes           []string
	PolicyFile      string // of ABAC
	WebhookFile     string // in kubeconfig format
	WebhookVersion  string
	AuthorizedTTL   time.Duration
	UnauthorizedTTL time.Duration
}

// Configuration is the same as a file has it, checked.
func (f AuthorizationFlags) Configuration() (*apiserver.AuthorizationConfiguration, error) {
	config := &apiserver.AuthorizationConfiguration{}
	for n, mode := range f.Modes {
		switch {
		case !slices.Contains(Modes, mode):
			return nil, fmt.Errorf("authorization-mode %q is not a valid mode", mode)
		case slices.Contains(f.Modes[:n], mode):
			return nil, fmt.Errorf("authorization-mode %q has mode specified more than once", f.Modes)
		case mode == ModeABAC && f.PolicyFile == "":
			return nil, errors.New("authorization-mode ABAC's authorization policy file not passed")
		case mode == ModeWebhook && f.WebhookFile == "":
			return nil, errors.New("authorization-mode Webhook's authorization config file not passed")
		case mode == ModeWebhook:
			config.Authorizers = append(config.Authorizers, f.webhook())
		default:
			config.Authorizers = append(config.Authorizers, apiserver.AuthorizerConfiguration{Type: apiserver.AuthorizerType(mode), Name: strings.ToLower(mode)})
		}
	}
	if len(config.Authorizers) == 0 {
		return nil, errors.New("at least one authorization-mode must be passed")
	}
	if f.PolicyFile != "" && !slices.Contains(f.Modes, ModeABAC) {
		return nil, errors.New("cannot specify --authorization-policy-file without mode ABAC")
	}
	if f.WebhookFile != "" && !slices.Contains(f.Modes, ModeWebhook) {
		return nil, errors.New("cannot specify --authorization-webhook-config-file without mode Webhook")
	}
	return config, nil
}

func (f AuthorizationFlags) webhook() apiserver.AuthorizerConfiguration {
	return apiserver.AuthorizerConfiguration{
		Type: ModeWebhook, Name: "default",
		Webhook: &apiserver.WebhookConfiguration{
			AuthorizedTTL: metav1.Duration{Duration: f.AuthorizedTTL}, CacheAuthorizedRequests: f.AuthorizedTTL != 0,
			UnauthorizedTTL: metav1.Duration{Duration: f.UnauthorizedTTL}, CacheUnauthorizedRequests: f.UnauthorizedTTL != 0,
			Timeout: metav1.Duration{Duration: 30 * time.Second}, FailurePolicy: apiserver.FailurePolicyNoOpinion,
			SubjectAccessReviewVersion: f.WebhookVersion,
			ConnectionInfo:             apiserver.WebhookConnectionInfo{Type: apiserver.AuthorizationWebhookConnectionInfoTypeKubeConfigFile, KubeConfigFile: &f.WebhookFile},
		},
	}
}

// chain makes the links of a configuration, in order, behind the one that allows
// system:masters everything.
func (a *Authorizer) chain(config *apiserver.AuthorizationConfiguration) ([]link, error) {
	chain := []link{{kind: "", name: "kubernetes.io/system-privileged-group", authorize: allowMasters, rules: noRule}}
	for _, c := range config.Authorizers {
		l := link{kind: string(c.Type), name: c.Name}
		switch string(c.Type) {
		case ModeNode:
			l.authorize, l.rules = a.nodes.Authorize, nodeRules
		case ModeRBAC:
			l.authorize, l.rules = a.rbac.Authorize, a.rbac.RulesFor
		case ModeAlwaysAllow:
			l.authorize, l.rules = always(authorizer.DecisionAllow, ""), everyRule
		case ModeAlwaysDeny:
			l.authorize, l.rules = always(authorizer.DecisionNoOpinion, "Everything is forbidden."), noRule
		case ModeABAC:
			all, err := readPolicies(a.config.PolicyFile)
			if err != nil {
				return nil, err
			}
			l.authorize, l.rules = all.Authorize, all.RulesFor
		case ModeWebhook:
			hook, err := newAuthzWebhook(c, a.metrics)
			if err != nil {
				return nil, fmt.Errorf("authorizer %s: %w", c.Name, err)
			}
			l.authorize, l.rules = hook.authorize, webhookRules
		default:
			return nil, fmt.Errorf("unknown authorization mode %s specified", c.Type)
		}
		chain = append(chain, l)
	}
	return chain, nil
}

// fixedModes are the modes of a configuration that cannot come or go while the
// server runs.
func fixedModes(config *apiserver.AuthorizationConfiguration) []string {
	var modes []string
	for _, c := range config.Authorizers {
		if string(c.Type) != ModeWebhook {
			modes = append(modes, string(c.Type))
		}
	}
	return modes
}

func allowMasters(_ context.Context, attrs authorizer.Attributes) (authorizer.Decision, string, error) {
	if who := attrs.GetUser(); who != nil && slices.Contains(who.GetGroups(), user.SystemPrivilegedGroup) {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

func always(decision authorizer.Decision, reason string) func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
	return func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
		return decision, reason, nil
	}
}

func everyRule(context.Context, user.Info, string) ([]authorizer.ResourceRuleInfo, []authorizer.NonResourceRuleInfo, bool, error) {
	all := []string{"*"}
	return []authorizer.ResourceRuleInfo{&authorizer.DefaultResourceRuleInfo{Verbs: all, APIGroups: all, Resources: all}},
		[]authorizer.NonResourceRuleInfo{&authorizer.DefaultNonResourceRuleInfo{Verbs: all, NonResourceURLs: all}}, false, nil
}

func noRule(context.Context, user.Info, string) ([]authorizer.ResourceRuleInfo, []authorizer.NonResourceRuleInfo, bool, error) {
	return nil, nil, false, nil
}

// nodeRules are incomplete: what a node may read depends on its pods.
func nodeRules(_ context.Context, who user.Info, _ string) ([]authorizer.ResourceRuleInfo, []authorizer.NonResourceRuleInfo, bool, error) {
	if _, isNode := nodeName(who); !isNode {
		return nil, nil, false, nil
	}
	return nil, nil, true, errors.New("node authorizer does not support user rule resolution")
}

func webhookRules(context.Context, user.Info, string) ([]authorizer.ResourceRuleInfo, []authorizer.NonResourceRuleInfo, bool, error) {
	return nil, nil, true, errors.New("webhook authorizer does not support user rule resolution")
}

// reload takes over a new configuration.
func (a *Authorizer) reload(_ context.Context, raw []byte) (again bool, err error) {
	config, err := ParseAuthorization(raw, fixedModes(a.config.Configuration)...)
	if err != nil {
		return false, err
	}
	for _, mode := range fixedModes(config) {
		if mode != ModeAlwaysAllow && mode != ModeAlwaysDeny && !slices.Contains(fixedModes(a.config.Configuration), mode) {
			return false, fmt.Errorf("authorizer type %s is not allowed if it was not enabled at initial server startup", mode)
		}
	}
	next, err := a.chain(config)
	if err != nil {
		return !errors.Is(err, os.ErrNotExist), err
	}
	a.links.Store(&next)
	return false, nil
}
