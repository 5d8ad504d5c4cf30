//go:build tools

package tools

import _ "github.com/errata-ai/vale/v3/cmd/vale"
