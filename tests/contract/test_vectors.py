"""The tokens that crates/adapters/eks-auth is held to are still those that botocore makes."""

import subprocess
import sys

from prepare import ROOT


def test_the_vectors_are_what_botocore_signs():
    script = ROOT / "crates" / "adapters" / "eks-auth" / "tests" / "botocore_vectors.py"
    checked = subprocess.run([sys.executable, str(script), "--check"], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr
