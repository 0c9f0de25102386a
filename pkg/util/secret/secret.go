// Package secret holds the one type for passwords, tokens and private keys.
package secret

import (
	"encoding/json"
	"fmt"
	"log/slog"
)

const mask = "******"

// Secret is a text that never prints, marshals or logs itself. The zero value is empty.
type Secret struct{ text string }

// New wraps text.
func New(text string) Secret { return Secret{text} }

// Reveal returns the text, for the one place that needs it.
func (s Secret) Reveal() string { return s.text }

// IsZero reports whether the secret is empty.
func (s Secret) IsZero() bool { return s.text == "" }

// String hides the text.
func (s Secret) String() string {
	if s.IsZero() {
		return ""
	}
	return mask
}

// Format hides the text from every verb.
func (s Secret) Format(f fmt.State, _ rune) { fmt.Fprint(f, s.String()) }

// MarshalJSON hides the text.
func (s Secret) MarshalJSON() ([]byte, error) { return json.Marshal(s.String()) }

// UnmarshalJSON reads a plain string.
func (s *Secret) UnmarshalJSON(b []byte) error { return json.Unmarshal(b, &s.text) }

// LogValue hides the text from log/slog.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }
