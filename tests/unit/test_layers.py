import subprocess
import sys


def test_reading_and_tables_start_without_torch() -> None:
    code = (
        "import sys, elasticctr.data.dataset, elasticctr.table, elasticctr.cli.app;"
        "sys.exit(sum(name in sys.modules for name in ('torch', 'ray', 'kubernetes', 's3fs')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
