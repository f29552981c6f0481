"""Functions on Spark's DataFrames, as pipelines of tests name them."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as f


def doubled(views: DataFrame) -> DataFrame:
    """A column more, no row less."""
    return views.withColumn("twice", f.col("v") * 2)


def counted(views: DataFrame) -> DataFrame:
    """A row for each key, by SQL of Spark's own: sessions do not see each other's views."""
    views.createOrReplaceTempView("views")
    return views.sparkSession.sql("SELECT k, count(*) AS n, sum(v) AS v FROM views GROUP BY k")


def spread(views: DataFrame) -> DataFrame:
    """Another key, and two rows for each that has one."""
    sides = f.explode(f.array(f.lit("here"), f.lit("there")))
    return views.filter("page IS NOT NULL").select("page", "v", sides.alias("side"))


def joined(views: DataFrame, clicks: DataFrame) -> DataFrame:
    """What two flows have of each key, in columns that the function was not asked for as well."""
    return views.join(clicks.withColumnRenamed("m", "k"), "k").withColumn("sum", f.col("v") + f.col("c"))


def tripled(numbers: DataFrame) -> DataFrame:
    """By a function of Python's on each row, which Spark's workers import."""
    return numbers.withColumn("thrice", f.udf(_times_three, "bigint")("v"))


def _times_three(v):
    return v * 3


def nothing(views: DataFrame) -> None:
    """Forgets to give anything."""


def failing(views: DataFrame) -> DataFrame:
    """Fails before Spark has anything to do."""
    raise ValueError("not today")


def telling(views: DataFrame) -> DataFrame:
    """Fails with a value of a record in its message."""
    raise ValueError(f"{views.filter('v = 213').collect()[0].k} is not allowed")


def misspelt(views: DataFrame) -> DataFrame:
    """Names a column that is not there."""
    return views.select("k", f.col("w").alias("v"))


def failing_on_one(views: DataFrame) -> DataFrame:
    """Fails on one record, in Spark's workers."""
    return views.withColumn("v", f.udf(_checked, "int")("v"))


def _checked(v):
    if v == 213:
        raise ValueError(f"{v} is not allowed")
    return v


def in_latin_1(views: DataFrame) -> DataFrame:
    """Text that its writer did not make UTF-8."""
    return views.withColumn("k", f.unhex(f.lit("e9")).cast("string"))


def dividing(views: DataFrame) -> DataFrame:
    """Fails on one record, in Spark itself."""
    return views.withColumn("v", (1 / (f.col("v") - 213)).cast("int"))


def without_key(views: DataFrame) -> DataFrame:
    """Forgets a column."""
    return views.drop("k")


def twice_the_key(views: DataFrame) -> DataFrame:
    """Has a column two times."""
    return views.select("k", "k", "v")


def in_words(views: DataFrame) -> DataFrame:
    """Gives text where a number was declared."""
    return views.withColumn("v", f.lit("many"))


def lower_keys(views: DataFrame) -> DataFrame:
    """Changes keys that it was declared to leave alone."""
    return views.withColumn("k", f.regexp_replace("k", "key-1", "KEY-1"))


def others_keys(views: DataFrame) -> DataFrame:
    """Gives every row a key that some task was given, but not always the one that has it."""
    return views.withColumn("k", f.lit("key-1"))


def without_some(views: DataFrame) -> DataFrame:
    """Gives nothing."""
    return views.limit(0)
