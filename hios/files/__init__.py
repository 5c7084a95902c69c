"""Reading and writing files.

artifacts        the project's files, validated, written whole or not at all
base             what the classes of all formats have in common
option_defaults  defaults that command line, config.yaml and library share
validation       violations of a schema in words
read_limits      how much memory reading may take
yaml_file        YAML without duplicate keys
text_tables      tables as CSV and as text
json_cache       a cache of JSON files
folder_cache     a cache of folders
versions         versions of the software that results depend on
"""
