package admission

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/apis/apiserver"
	apiserverv1 "k8s.io/apiserver/pkg/apis/apiserver/v1"
	apiserverv1alpha1 "k8s.io/apiserver/pkg/apis/apiserver/v1alpha1"
	"sigs.k8s.io/yaml"
)

// Choice is what an administrator says of the plugins.
type Choice struct {
	// Enable are plugins beside those that run anyway, Disable those that do not.
	Enable, Disable []string
	// Only are all that run; nil: as the fields above say.
	Only []string
	// Configurations of plugins, in JSON or YAML, by name.
	Configurations map[string][]byte
}

// check refuses names that nothing is known by, and contradictions.
func (c *Choice) check(known []string) error {
	var errs []error
	if c.Only != nil && len(c.Enable)+len(c.Disable) > 0 {
		errs = append(errs, errors.New("admission-control and enable-admission-plugins/disable-admission-plugins flags are mutually exclusive"))
	}
	for _, l := range []struct {
		flag  string
		names []string
	}{{"admission-control", c.Only}, {"enable-admission-plugins", c.Enable}, {"disable-admission-plugins", c.Disable}} {
		for _, name := range l.names {
			if !slices.Contains(known, name) {
				errs = append(errs, fmt.Errorf("%s plugin %q is unknown", l.flag, name))
			}
		}
	}
	both := slices.DeleteFunc(slices.Clone(c.Enable), func(name string) bool { return !slices.Contains(c.Disable, name) })
	if slices.Sort(both); len(both) > 0 {
		errs = append(errs, fmt.Errorf("%v in enable-admission-plugins and disable-admission-plugins overlapped", slices.Compact(both)))
	}
	return errors.Join(errs...)
}

func (c *Choice) enabled(name string, byDefault bool) bool {
	if c.Only != nil {
		return slices.Contains(c.Only, name)
	}
	return slices.Contains(c.Enable, name) || byDefault && !slices.Contains(c.Disable, name)
}

// ReadConfigurations reads a file with an AdmissionConfiguration, and the files
// that it points to. A file may also be the bare configuration of one of the two
// plugins that are older than that kind.
func ReadConfigurations(file string) (map[string][]byte, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("unable to read admission control configuration from %q [%w]", file, err)
	}
	types := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{apiserver.AddToScheme, apiserverv1.AddToScheme, apiserverv1alpha1.AddToScheme} {
		if err := add(types); err != nil {
			return nil, err
		}
	}
	obj, err := runtime.Decode(serializer.NewCodecFactory(types, serializer.EnableStrict).UniversalDecoder(), raw)
	if runtime.IsMissingVersion(err) || runtime.IsMissingKind(err) || runtime.IsNotRegisteredError(err) {
		return bareConfiguration(raw, err)
	}
	if err != nil {
		return nil, err
	}
	config, ok := obj.(*apiserver.AdmissionConfiguration)
	if !ok {
		return nil, fmt.Errorf("unexpected type: %T", obj)
	}
	all := map[string][]byte{}
	for _, p := range config.Plugins {
		if _, taken := all[p.Name]; taken {
			continue // the first one counts
		}
		if p.Configuration != nil {
			all[p.Name] = p.Configuration.Raw
			continue
		}
		if p.Path == "" {
			continue
		}
		if !filepath.IsAbs(p.Path) {
			p.Path = filepath.Join(filepath.Dir(file), p.Path)
		}
		if all[p.Name], err = os.ReadFile(p.Path); err != nil {
			return nil, fmt.Errorf("configuration of admission plugin %s: %w", p.Name, err)
		}
	}
	return all, nil
}

func bareConfiguration(raw []byte, unknown error) (map[string][]byte, error) {
	keys := map[string]any{}
	if yaml.Unmarshal(raw, &keys) == nil {
		for key, plugin := range map[string]string{"imagePolicy": "ImagePolicyWebhook", "podNodeSelectorPluginConfig": "PodNodeSelector"} {
			if _, ok := keys[key]; ok {
				return map[string][]byte{plugin: raw}, nil
			}
		}
	}
	return nil, unknown
}

// decodeConfiguration reads a plugin's configuration, which must be of one of the
// kinds.
func decodeConfiguration(raw []byte, into any, kinds ...schema.GroupVersionKind) error {
	var head struct{ APIVersion, Kind string }
	if err := yaml.Unmarshal(raw, &head); err != nil {
		return err
	}
	kind := schema.FromAPIVersionAndKind(head.APIVersion, head.Kind)
	if !slices.Contains(kinds, kind) {
		var names []string
		for _, k := range kinds {
			names = append(names, k.Kind+" of "+k.GroupVersion().String())
		}
		return fmt.Errorf("no kind %q is known in version %q; write a %s", head.Kind, head.APIVersion, strings.Join(names, " or "))
	}
	return yaml.UnmarshalStrict(raw, into)
}
