// Renders the chart with Go's own templates, for where Helm is not installed: the functions the chart uses, and nothing
// else of Helm. Each case must give sound YAML with the objects it should have. Run by scripts/test-deploy:
//
//	go run render.go CHART
package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"sort"
	"strings"
	"text/template"

	"gopkg.in/yaml.v3"
)

type values = map[string]interface{}

// What a user might set, and what must come of it.
var cases = []struct {
	name    string
	set     values
	kinds   string
	refused string
}{
	{name: "nothing set", refused: "adminKey.secretName"},
	{name: "a single server", set: values{"adminKey": values{"secretName": "a"}}, kinds: "Service StatefulSet"},
	{
		name: "nodes on PostgreSQL, watched",
		set: values{
			"adminKey":         values{"secretName": "a"},
			"postgres":         values{"secretName": "p"},
			"monitoring":       values{"enabled": true, "keySecretName": "k", "labels": values{"release": "prometheus"}},
			"settings":         values{"TIDEWHEEL_HISTORY": "7d", "TIDEWHEEL_PUSH_PER_HOST": 32},
			"podAnnotations":   values{"a": "b"},
			"nodeSelector":     values{"disk": "fast"},
			"tolerations":      []interface{}{values{"key": "x", "operator": "Exists"}},
			"imagePullSecrets": []interface{}{values{"name": "pull"}},
		},
		kinds: "Deployment Job PodDisruptionBudget PrometheusRule Service ServiceMonitor",
	},
	{
		name:  "one node on PostgreSQL",
		set:   values{"adminKey": values{"secretName": "a"}, "postgres": values{"secretName": "p"}, "replicas": 1},
		kinds: "Deployment Job Service",
	},
}

func main() {
	failed := false
	for _, c := range cases {
		kinds, err := render(os.Args[1], c.set)
		switch {
		case c.refused != "" && (err == nil || !strings.Contains(err.Error(), c.refused)):
			err = fmt.Errorf("should be refused for %s, got %v", c.refused, err)
		case c.refused != "":
			err = nil
		case err == nil && kinds != c.kinds:
			err = fmt.Errorf("makes %s, not %s", kinds, c.kinds)
		}
		if err != nil {
			failed = true
			fmt.Fprintf(os.Stderr, "%s: %v\n", c.name, err)
		}
	}
	if failed {
		os.Exit(1)
	}
	fmt.Printf("%d cases of the chart render\n", len(cases))
}

func render(chart string, set values) (string, error) {
	var about, given values
	for file, into := range map[string]*values{"Chart.yaml": &about, "values.yaml": &given} {
		text, err := os.ReadFile(filepath.Join(chart, file))
		if err != nil {
			return "", err
		}
		if err := yaml.Unmarshal(text, into); err != nil {
			return "", fmt.Errorf("%s: %w", file, err)
		}
	}
	merge(given, set)
	root := template.New("").Option("missingkey=error")
	root.Funcs(functions(root))
	paths, err := filepath.Glob(filepath.Join(chart, "templates", "*"))
	if err != nil {
		return "", err
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return "", err
		}
		if _, err := root.New(filepath.Base(path)).Parse(string(text)); err != nil {
			return "", err
		}
	}
	data := values{
		"Values":  given,
		"Chart":   values{"Name": about["name"], "AppVersion": about["appVersion"]},
		"Release": values{"Name": "test", "Service": "Helm", "Namespace": "default"},
		"Files":   files{chart},
	}
	var kinds []string
	for _, path := range paths {
		if !strings.HasSuffix(path, ".yaml") {
			continue
		}
		var out bytes.Buffer
		if err := root.ExecuteTemplate(&out, filepath.Base(path), data); err != nil {
			return "", err
		}
		made, err := kindsOf(out.Bytes())
		if err != nil {
			return "", fmt.Errorf("%s: %w\n%s", path, err, out.String())
		}
		kinds = append(kinds, made...)
	}
	sort.Strings(kinds)
	return strings.Join(kinds, " "), nil
}

// The kinds of all objects in a file. Keys that are there twice are refused by the decoder.
func kindsOf(text []byte) ([]string, error) {
	var kinds []string
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	for {
		var object values
		err := decoder.Decode(&object)
		if errors.Is(err, io.EOF) {
			return kinds, nil
		}
		if err != nil {
			return nil, err
		}
		if object == nil {
			continue
		}
		metadata, _ := object["metadata"].(values)
		kind, _ := object["kind"].(string)
		if kind == "" || metadata["name"] == nil || object["apiVersion"] == nil || object["spec"] == nil {
			return nil, fmt.Errorf("not a whole object: %v", object)
		}
		if err := noHoles(kind, object); err != nil {
			return nil, err
		}
		kinds = append(kinds, kind)
	}
}

// A key without a value is mostly a template that rendered to nothing.
func noHoles(path string, value interface{}) error {
	switch value := value.(type) {
	case nil:
		return fmt.Errorf("%s is empty", path)
	case values:
		for key, inner := range value {
			// A container without variables has an empty list of them.
			if key == "env" && inner == nil {
				continue
			}
			if err := noHoles(path+"."+key, inner); err != nil {
				return err
			}
		}
	case []interface{}:
		for i, inner := range value {
			if err := noHoles(fmt.Sprintf("%s[%d]", path, i), inner); err != nil {
				return err
			}
		}
	}
	return nil
}

func merge(into, from values) {
	for key, value := range from {
		below, isMap := value.(values)
		if there, ok := into[key].(values); ok && isMap {
			merge(there, below)
		} else {
			into[key] = value
		}
	}
}

type files struct{ chart string }

// Get is a file of the chart as it is.
func (f files) Get(name string) (string, error) {
	text, err := os.ReadFile(filepath.Join(f.chart, name))
	return string(text), err
}

func functions(root *template.Template) template.FuncMap {
	return template.FuncMap{
		"include": func(name string, data interface{}) (string, error) {
			var out strings.Builder
			err := root.ExecuteTemplate(&out, name, data)
			return out.String(), err
		},
		"required": func(why string, value interface{}) (interface{}, error) {
			if value == nil || value == "" {
				return nil, errors.New(why)
			}
			return value, nil
		},
		"default": func(otherwise, value interface{}) interface{} {
			if value == nil || reflect.ValueOf(value).IsZero() {
				return otherwise
			}
			return value
		},
		"toYaml": func(value interface{}) (string, error) {
			out, err := yaml.Marshal(value)
			return strings.TrimSuffix(string(out), "\n"), err
		},
		"nindent": func(spaces int, text string) string {
			pad := "\n" + strings.Repeat(" ", spaces)
			return pad + strings.ReplaceAll(text, "\n", pad)
		},
		"quote":      func(value interface{}) string { return fmt.Sprintf("%q", fmt.Sprint(value)) },
		"trunc":      func(count int, text string) string { return text[:min(count, len(text))] },
		"trimSuffix": func(suffix, text string) string { return strings.TrimSuffix(text, suffix) },
		"contains":   func(part, text string) bool { return strings.Contains(text, part) },
		"int":        func(value interface{}) int { return value.(int) },
		"add":        func(a, b int) int { return a + b },
	}
}

func min(a, b int) int {
	if a < b {
		return a
	}
	return b
}
