# Databricks notebook source
# MAGIC %md
# MAGIC # orders
# MAGIC What waits in `landing` is carried into `table`. The job in `databricks.yml` runs this notebook; you can run it
# MAGIC too, cell by cell. Wherry is installed by the first cell, or taken from a checkout whose root `wherry` names.

# COMMAND ----------

# MAGIC %pip install --quiet "deltalake>=1.6,<2" "ruamel.yaml>=0.18" "click>=8.1" "rich>=13"

# COMMAND ----------

import sys

for name in ("wherry", "landing", "table", "state"):
    dbutils.widgets.text(name, "")
given = {name: dbutils.widgets.get(name) for name in ("wherry", "landing", "table", "state")}
if given["wherry"]:
    sys.path.insert(0, given["wherry"])

# COMMAND ----------

from runners import Pipeline

variables = {"LANDING": given["landing"], "TABLE": given["table"], "STATE": given["state"]}
pipeline = Pipeline.load("orders.yaml", variables={name: value for name, value in variables.items() if value})

# COMMAND ----------

# MAGIC %md
# MAGIC What would become of the next rows. Nothing is written.

# COMMAND ----------

pipeline.preview()

# COMMAND ----------

# MAGIC %md
# MAGIC Carry them. A run that fails raises `PipelineFailed`, which fails the cell and the job.

# COMMAND ----------

pipeline.run()

# COMMAND ----------

# MAGIC %md
# MAGIC How far each lane is, and the last rows that were refused.

# COMMAND ----------

pipeline.lanes()

# COMMAND ----------

pipeline.dead_letters(limit=5)
