package config

import (
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var durationType = reflect.TypeFor[metav1.Duration]()

// field is a field of the configuration types, with what its tags say.
type field struct {
	name     string // as written in the file
	index    []int  // for reflect.Value.FieldByIndex
	required bool
	enum     []string
	def      string
	min, max int64 // both 0: any
	policy   Policy
	file     bool // names files on the control machine, whose content counts
}

// fieldsOf lists the fields of a configuration struct, embedded ones included.
func fieldsOf(t reflect.Type) []field {
	var fields []field
	for _, sf := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(sf.Tag.Get("json"), ",")
		if sf.Anonymous || name == "" || name == "-" {
			continue
		}
		f := field{name: name, index: sf.Index, policy: policyOf(t, sf), file: sf.Tag.Get("content") == "file"}
		for key := range strings.SplitSeq(sf.Tag.Get("jsonschema"), ",") {
			key, value, _ := strings.Cut(key, "=")
			switch key {
			case "required":
				f.required = true
			case "enum":
				f.enum = append(f.enum, value)
			case "default":
				f.def = value
			case "minimum":
				f.min, _ = strconv.ParseInt(value, 10, 64)
			case "maximum":
				f.max, _ = strconv.ParseInt(value, 10, 64)
			}
		}
		fields = append(fields, f)
	}
	return fields
}

func names(fields []field) []string {
	all := make([]string, len(fields))
	for i, f := range fields {
		all[i] = f.name
	}
	return all
}

// isObject reports whether t is one of the configuration structs, as opposed
// to a struct that is written as a single text.
func isObject(t reflect.Type) bool {
	return t.Kind() == reflect.Struct && slices.ContainsFunc(reflect.VisibleFields(t), func(f reflect.StructField) bool {
		return f.Tag.Get("json") != "" && !f.Anonymous
	})
}

// setDefaults fills in the defaults of the tags wherever v holds nothing.
func setDefaults(v reflect.Value) {
	switch {
	case v.Kind() == reflect.Pointer && !v.IsNil():
		setDefaults(v.Elem())
	case v.Kind() == reflect.Slice:
		for i := range v.Len() {
			setDefaults(v.Index(i))
		}
	case isObject(v.Type()):
		for _, f := range fieldsOf(v.Type()) {
			fv := v.FieldByIndex(f.index)
			if f.def != "" && fv.IsZero() {
				setText(fv, f.def)
			}
			setDefaults(fv)
		}
	}
}

// setText sets a scalar from the text of a tag.
func setText(v reflect.Value, text string) {
	switch {
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		setText(v.Elem(), text)
	case v.Type() == durationType:
		d, _ := time.ParseDuration(text)
		v.Set(reflect.ValueOf(metav1.Duration{Duration: d}))
	case v.CanInt():
		n, _ := strconv.ParseInt(text, 10, 64)
		v.SetInt(n)
	case v.Kind() == reflect.Bool:
		v.SetBool(text == "true")
	default:
		v.SetString(text)
	}
}
