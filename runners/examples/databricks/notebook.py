# Databricks notebook source
# MAGIC %md
# MAGIC # orders
# MAGIC What waits in `landing` is carried into `table`. The job in `databricks.yml` runs this notebook; you can run it
# MAGIC too, cell by cell. `wherry` says what pip installs: a package, or the path of a wheel.

# COMMAND ----------

dbutils.widgets.text("wherry", "wherry")
wherry = dbutils.widgets.get("wherry")

# COMMAND ----------

# MAGIC %pip install --quiet $wherry

# COMMAND ----------

dbutils.library.restartPython()

# COMMAND ----------

from pathlib import Path

from wherry import Pipeline

names = ("folder", "landing", "table", "state")
for name in names:
    dbutils.widgets.text(name, "")
given = {name.upper(): dbutils.widgets.get(name) for name in names}
variables = {name: value for name, value in given.items() if value}
pipeline = Pipeline.load(Path(given["FOLDER"], "orders.yaml"), variables=variables)

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
