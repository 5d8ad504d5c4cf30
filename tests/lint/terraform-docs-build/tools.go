//go:build tools

package tools

import _ "github.com/terraform-docs/terraform-docs"
