"""Airflow 3: one task a definition. Save it among your DAGs; Airflow's own schedule counts, not the definition's."""

from __future__ import annotations

import subprocess
from datetime import datetime, timedelta

from airflow.exceptions import AirflowException, AirflowFailException, AirflowSkipException
from airflow.sdk import dag, task


@task(retries=3, retry_delay=timedelta(minutes=5))
def carry(definition: str) -> None:
    """Carry what waits. Airflow ends a task by SIGTERM to its process group: batches in flight then finish."""
    code = subprocess.run(["WHERRY", "run", definition, "--quiet"], check=False).returncode
    if code == 2:
        raise AirflowFailException("the definition or the call is wrong; trying again does not help")
    if code == 4:
        raise AirflowSkipException("another run has the pipeline")
    if code != 0:  # 1: failed, 3: stopped before the end; the next try goes on where it was
        raise AirflowException(f"wherry run {definition} ended with {code}")


@dag(schedule="*/15 * * * *", start_date=datetime(2026, 1, 1), catchup=False, max_active_runs=1)
def wherry() -> None:
    """Prices before orders: put your definitions and times in their place."""
    carry.override(task_id="prices")("DIRECTORY/prices.yaml") >> carry.override(task_id="orders")(
        "DIRECTORY/orders.yaml"
    )


wherry()
