# Databricks notebook source
# MAGIC %md
# MAGIC # orders
# MAGIC This notebook shows and carries what waits in the volume `LANDING`. `databricks bundle run by_hand` runs it with
# MAGIC its parameters. `FOLDER` is the folder of the definition in the workspace.

# COMMAND ----------

for name in ("FOLDER", "LANDING", "SCHEMA"):
    dbutils.widgets.text(name, "")
folder = dbutils.widgets.get("FOLDER")

# COMMAND ----------

# MAGIC %pip install --quiet -r $folder/requirements.txt

# COMMAND ----------

dbutils.library.restartPython()

# COMMAND ----------

from wherry import Pipeline

pipeline = Pipeline.load(f"{dbutils.widgets.get('FOLDER')}/orders.yaml")

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

pipeline.offsets.read()

# COMMAND ----------

pipeline.refused.list(limit=5)
