package edit

import (
	"errors"

	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"
)

// Read reads an object from YAML as the server would: no field twice, whole numbers
// whole.
func Read(text string) (map[string]any, error) {
	data, err := yaml.YAMLToJSONStrict([]byte(text))
	if err != nil {
		return nil, err
	}
	object := fields{}
	if err := utiljson.Unmarshal(data, &object); err != nil {
		return nil, err
	}
	if len(object) == 0 {
		return nil, errors.New("yaml: no fields")
	}
	return object, nil
}
