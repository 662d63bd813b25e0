from elasticctr.cli.entry import main

main()
